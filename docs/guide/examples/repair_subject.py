"""A memory of one's own as a subject of `memtrace-otel repair`: facts from a model, all of them in the prompt."""

import json

from openai import OpenAI

from memtrace_otel import operation, scope_id, variable_ref

EXTRACT = 'List the facts of the message. Reply in JSON: {"facts": ["..."]}'
ANSWER = "Answer the question from these memories.\n\n{memories}"


class Notes:
    def __init__(self, extract=EXTRACT, answer=ANSWER, model="gpt-5-mini"):
        self.texts = {"extraction prompt": extract, "answering prompt": answer}
        self.model, self.client = model, OpenAI()

    def components(self):
        return self.texts

    def run(self, candidate, case):
        scope, notes = scope_id("notes", user=case.conversation), []
        for message in case.messages:
            with operation(kind="extract", system="notes", scope=scope) as op:
                op.read(variable_ref("message", message["content"]), role="message", content=message["content"])
                for fact in json.loads(self.ask(candidate["extraction prompt"], message["content"]))["facts"]:
                    op.wrote(f"memory:{len(notes)}", action="ADD", content=fact)
                    notes.append(fact)
        with operation("search_memory", kind="retrieve", system="notes", scope=scope) as op:
            op.read(variable_ref("query", case.question), role="query", content=case.question)
            for number, note in enumerate(notes):
                op.read(f"memory:{number}", role="hit", content=note)
        listed = "\n".join(f"- {note}" for note in notes)
        return self.ask(candidate["answering prompt"].replace("{memories}", listed), case.question)

    def ask(self, system, text):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        return self.client.chat.completions.create(model=self.model, messages=messages).choices[0].message.content
