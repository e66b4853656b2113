"""Upkeep: which prompts behind a reply ask for a title, a summary or notes, and which ask for a reply to the user."""

from __future__ import annotations

import pytest

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.chat_history.messages import Message
from memtrace_otel.instrumentation.chat_history.upkeep import reply_before, tasks_of

RULES = "You help the members of a rowing club. Keep the notes of the coach in mind."
QUESTION = "Which boat does the women's eight take to the regatta?"
REPLY = "The women's eight takes the Heron, the boat with the white stripe, and the light oars."
ANSWER = recall.Answer("answer:1", "o1", REPLY, QUESTION, tasks=tasks_of([RULES, QUESTION]))
CHAT = [("system", RULES), ("user", QUESTION), ("assistant", REPLY)]
WRITTEN = f"User: {QUESTION}\nAssistant: {REPLY}"


def about(*prompt: tuple[str, str]) -> recall.Answer | None:
    """What a prompt is about; all of its messages behind those of `CHAT` are new."""
    messages = [Message(role, text) for role, text in prompt]
    known = len(CHAT) if list(prompt[: len(CHAT)]) == CHAT else 0
    new = [place for place, (role, _) in enumerate(prompt) if place >= known and role == "user"]
    return reply_before(messages, new, [ANSWER], ())


@pytest.mark.parametrize(
    "prompt",
    [
        [("user", f"Write a title for this chat.\n{WRITTEN}\nTitle, please:")],
        [*CHAT, ("user", "Create a summary of the conversation above:")],
        [*CHAT, ("user", "Generate a title of at most six words.")],
        [*CHAT, ("user", "Fasse das Gespräch in einem Satz zusammen.")],
        [("system", "Condense the conversation into one line for the sidebar."), *CHAT[1:]],
        [("system", "Extract facts about the user from the message."), ("user", QUESTION)],
        [("user", f"Question: {QUESTION}\nAnswer: {REPLY}\nSuggest three follow-up questions as JSON.")],
        [("user", f"请为这段对话生成一个标题: {REPLY}")],
        [("system", "Rewrite the profile with what is new."), ("user", f"Old profile: none\n\n{WRITTEN}")],
        [("user", f"<chat>\n{WRITTEN}\n</chat>")],
        [("user", f"Rephrase the follow up as a standalone question.\n{WRITTEN}\nFollow up: And the men?")],
        [("system", "Does the reply hold personal data? Say yes or no."), ("user", WRITTEN)],
    ],
)
def test_a_prompt_that_asks_for_upkeep(prompt: list[tuple[str, str]]) -> None:
    assert about(*prompt) == ANSWER


@pytest.mark.parametrize(
    "prompt",
    [
        [*CHAT, ("user", "And which boat do the men take?")],
        [*CHAT, ("user", "Can you summarise what we said in this chat so far?")],
        [*CHAT, ("user", "Write a summary of the novel Three Men in a Boat.")],
        [*CHAT, ("user", "Check your reply for mistakes and write it again.")],
        [("system", f"{RULES}\nSummary of the chat so far: boats."), *CHAT[1:], ("user", "And the men?")],
        [("system", f"{RULES}\nEarlier: {WRITTEN}"), ("user", "And the men?")],
        [("user", f"{WRITTEN}\nUser: And which boat do the men take?")],
        [("user", f"Question: {QUESTION}\nDraft: {REPLY}\nCritique: short. Write the final answer.")],
        [("user", f"Question: {QUESTION}\nNotes: {REPLY}\nWrite the answer from the notes.")],
        [("system", "Translate the reply into German."), ("user", WRITTEN)],
        [("system", "You are the reporter. Summarize the findings for the user."), *CHAT[1:]],
        [("system", f"{RULES}\nContext: the Heron was sold."), ("user", QUESTION)],
        [("user", "Write a title for this chat.")],
    ],
)
def test_a_prompt_that_asks_for_a_reply_to_the_user(prompt: list[tuple[str, str]]) -> None:
    assert about(*prompt) is None


def test_a_short_reply_needs_its_question() -> None:
    short = ANSWER._replace(text="The Heron.")
    asked = [Message("user", "Write a title for this chat: The Heron.")]
    assert reply_before(asked, [0], [short], ()) is None
    asked = [Message("user", f"Write a title for this chat: {QUESTION} The Heron.")]
    assert reply_before(asked, [0], [short], ()) is short


def test_a_reply_that_the_provider_holds() -> None:
    asked = [Message("user", "Write a title for this chat.")]
    assert reply_before(asked, [0], [ANSWER], {"o1"}) is ANSWER


def test_the_newest_reply_that_the_prompt_repeats_counts() -> None:
    older = ANSWER._replace(origin="o0", text="The men's four takes the Kingfisher, with the oars from the shed.")
    asked = [Message("user", f"Summarise this chat.\nAssistant: {older.text}\n{WRITTEN}")]
    assert reply_before(asked, [0], [ANSWER, older], ()) is ANSWER
