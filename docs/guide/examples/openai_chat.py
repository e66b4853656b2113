"""A chat that remembers by repeating its history, and keeps it short: the last two exchanges stay, older ones go."""

import os

import openai

client = openai.OpenAI()
MODEL = os.environ.get("MODEL", "gpt-5-mini")
history = [{"role": "system", "content": "You are a helpful assistant."}]


def say(text: str) -> str:
    history.append({"role": "user", "content": text})
    reply = client.chat.completions.create(model=MODEL, messages=history).choices[0].message.content
    history.append({"role": "assistant", "content": reply})
    del history[1 : max(1, len(history) - 4)]
    return reply


if __name__ == "__main__":
    for text in ("My cat is called Tom.", "I live in Oslo.", "I work as a baker.", "What is my cat called?"):
        print(say(text))
