"""A program with a real Mem0 that answers questions from memory, and says what each round of them cost it.

    worker.py HOME        the model is reached by OPENAI_BASE_URL

For each line on standard input it plays one round (a turn that is remembered, a question that is answered and judged)
and prints the wall and CPU seconds, of the whole process, that it took. It knows nothing of telemetry.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from memtrace_otel.demo.assistant import Assistant
from memtrace_otel.demo.script import load_json, load_script


def main(home: Path) -> None:
    conversation = load_json("story.json")["conversations"][0]
    question = load_script(()).questions[0]
    assistant = Assistant(home)
    for turn in conversation["turns"]:
        assistant.chat(conversation["user"], conversation["date"], turn["say"])
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        assistant.chat(conversation["user"], conversation["date"], conversation["turns"][0]["say"])
        assistant.ask(question.user, question.question, question.expected)
        print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
