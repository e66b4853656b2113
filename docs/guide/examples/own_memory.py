"""A memory of one's own: notes in SQLite, one per topic, found by shared words. The lines marked `#` instrument it."""

import os
import re
import sqlite3

import openai

from memtrace_otel import operation, scope_id, variable_ref  #


class Notes:
    """What a user has told; a note on a topic replaces the earlier one."""

    def __init__(self, user: str) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, topic TEXT UNIQUE, text TEXT)")
        self.owner = {"system": "notes", "scope": scope_id("notes", user=user)}  #

    def remember(self, topic: str, text: str) -> None:
        old = self.db.execute("SELECT id, text FROM note WHERE topic = ?", (topic,)).fetchone()
        with operation("upsert_memory", kind="update" if old else "create", **self.owner) as op:  #
            op.read(variable_ref("message", text), role="message", content=text)  #
            if old:
                op.read(f"memory:{old[0]}", role="previous", content=old[1])  #
                self.db.execute("UPDATE note SET text = ? WHERE id = ?", (text, old[0]))
                op.wrote(f"memory:{old[0]}", action="UPDATE", content=text)  #
            else:
                made = self.db.execute("INSERT INTO note (topic, text) VALUES (?, ?)", (topic, text))
                op.wrote(f"memory:{made.lastrowid}", action="ADD", content=text)  #

    def forget(self, topic: str) -> None:
        with operation("delete_memory", kind="delete", **self.owner) as op:  #
            for id, text in self.db.execute("SELECT id, text FROM note WHERE topic = ?", (topic,)).fetchall():
                gone = op.read(f"memory:{id}", role="previous", content=text)  #
                self.db.execute("DELETE FROM note WHERE id = ?", (id,))
                op.wrote(f"memory:{id}", action="DELETE", sources=[gone])  #

    def search(self, query: str) -> list[str]:
        with operation("search_memory", kind="retrieve", **self.owner) as op:  #
            op.read(variable_ref("query", query), role="query", content=query)  #
            words = set(re.findall(r"\w+", query.lower()))
            rows = [(len(words & set(re.findall(r"\w+", row[1].lower()))), *row) for row in self._all()]
            found = sorted((row for row in rows if row[0]), reverse=True)[:3]
            for score, id, text in found:
                op.read(f"memory:{id}", role="hit", content=text, score=score)  #
            return [text for _, _, text in found]

    def _all(self) -> list[tuple[int, str]]:
        return self.db.execute("SELECT id, text FROM note").fetchall()


def answer(notes: Notes, question: str) -> str:
    """Ask a model; its call needs no line of ours, the OpenAI instrumentor finds the notes in the prompt."""
    known = "\n".join(notes.search(question))
    messages = [{"role": "system", "content": f"Known:\n{known}"}, {"role": "user", "content": question}]
    reply = openai.OpenAI().chat.completions.create(model=os.environ.get("MODEL", "gpt-5-mini"), messages=messages)
    return reply.choices[0].message.content


if __name__ == "__main__":
    notes = Notes("ann")
    notes.remember("home", "Ann lives in Paris.")
    notes.remember("drink", "Ann likes green tea.")
    notes.remember("home", "Ann lives in Lisbon.")
    notes.remember("pet", "Ann has a dog named Rex.")
    notes.forget("pet")
    print(answer(notes, "Where does Ann live now?"))
