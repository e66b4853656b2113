"""A self-written story for planted faults: what is told, asked and answered, and how each step could spoil it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Told:
    """One fact of the story, the question about it, and the texts that a faulty step would produce."""

    key: str
    message: str
    fact: str
    question: str
    answer: str
    reworded: str  # the right answer in other words
    vague: str  # what a vague extraction keeps
    garbled: str  # what a wrong extraction keeps
    aside: str  # a later message about the same thing, harmless in itself
    merged: str  # the record after a bad merge with the aside: the answer is gone
    wrong: str  # a wrong answer
    outdated_message: str = ""  # told before `message`, which corrects it
    outdated: str = ""
    outdated_answer: str = ""


STORY = (
    Told(
        key="dog",
        message="We picked up our greyhound at the shelter today, he is called Biscuit.",
        fact="Has a greyhound called Biscuit",
        question="What is my dog called, the greyhound?",
        answer="Biscuit",
        reworded="Your greyhound is called Biscuit.",
        vague="Has a greyhound from the shelter",
        garbled="Has a greyhound called Pepper",
        aside="The vet says our greyhound needs longer walks.",
        merged="Has a greyhound that needs longer walks",
        wrong="Pepper",
    ),
    Told(
        key="employer",
        message="Good news, I signed with Norwind Shipping, I start in payroll next week.",
        fact="Works in payroll at Norwind Shipping",
        question="Which company do I work for in payroll?",
        answer="Norwind Shipping",
        reworded="You work in payroll at Norwind Shipping.",
        vague="Works in payroll",
        garbled="Works in payroll at Calder Foods",
        aside="Payroll work is calmer than I feared, the company even pays for lunch.",
        merged="Works in payroll and finds it calm",
        wrong="Calder Foods",
        outdated_message="I do payroll at Calder Foods these days.",
        outdated="Works in payroll at Calder Foods",
        outdated_answer="Calder Foods",
    ),
    Told(
        key="nuts",
        message="Please keep in mind that hazelnuts make my throat swell, I must avoid them.",
        fact="Must avoid hazelnuts because they make the throat swell",
        question="Which nuts must I avoid?",
        answer="hazelnuts",
        reworded="You must avoid hazelnuts.",
        vague="Must avoid some nuts",
        garbled="Must avoid walnuts because they make the throat swell",
        aside="I was at the allergy clinic again about the nuts I must avoid, all quiet.",
        merged="Goes to the allergy clinic about the nuts to avoid",
        wrong="walnuts",
    ),
    Told(
        key="climb",
        message="Yesterday my sister and I climbed Mount Orrel, my legs still hurt.",
        fact="Climbed Mount Orrel with the sister yesterday",
        question="When did I climb Mount Orrel?",
        answer="4 March 2024",
        reworded="You climbed it on March 4, 2024.",
        vague="Climbed Mount Orrel with the sister once",
        garbled="Climbed Mount Orrel with the sister three weeks ago",
        aside="I framed the photograph from the top of Mount Orrel.",
        merged="Climbed Mount Orrel with the sister and framed a photograph from the top",
        wrong="12 February 2024",
    ),
    Told(
        key="city",
        message="The move is done, my flat is in Lesk now, right by the harbour.",
        fact="Lives in a flat in Lesk by the harbour",
        question="In which town is my flat by the harbour?",
        answer="Lesk",
        reworded="Your flat is in Lesk.",
        vague="Lives in a flat by the harbour",
        garbled="Lives in a flat in Morrow by the harbour",
        aside="They are repairing the quay below my flat by the harbour.",
        merged="Lives in a flat by the harbour where the quay is under repair",
        wrong="Tarvin",
        outdated_message="My flat is in Tarvin, with a view of the harbour.",
        outdated="Lives in a flat in Tarvin by the harbour",
        outdated_answer="Tarvin",
    ),
    Told(
        key="music",
        message="For the band I play the cello and the accordion.",
        fact="Plays the cello and the accordion in a band",
        question="Which instruments do I play in the band?",
        answer="cello, accordion",
        reworded="You play the accordion and the cello.",
        vague="Plays instruments in a band",
        garbled="Plays the harp and the trombone in a band",
        aside="The band will play at the harvest fair.",
        merged="Plays instruments in a band that performs at the harvest fair",
        wrong="harp and trombone",
    ),
    Told(
        key="team",
        message="My team at the office has grown to 14 people.",
        fact="The office team has 14 people",
        question="How many people are on my team at the office?",
        answer="14",
        reworded="There are fourteen people on your team.",
        vague="The office team has grown",
        garbled="The office team has 9 people",
        aside="The office team got new desks.",
        merged="The office team has people with new desks",
        wrong="9",
        outdated_message="My team at the office has 9 people.",
        outdated="The office team has 9 people",
        outdated_answer="9",
    ),
    Told(
        key="school",
        message="Our daughter Mina was accepted at the Birch Lane school.",
        fact="The daughter Mina goes to the Birch Lane school",
        question="Which school does our daughter Mina go to?",
        answer="Birch Lane",
        reworded="Mina goes to Birch Lane.",
        vague="The daughter Mina goes to school",
        garbled="The daughter Mina goes to the Castle Hill school",
        aside="Mina painted the scenery for the school play.",
        merged="The daughter Mina goes to school and painted scenery for the play",
        wrong="Castle Hill",
    ),
)

NOISE = (
    ("I baked a biscuit cake for the office.", "Baked a biscuit cake for the office"),
    ("My cousin moved to Lesk last year.", "The cousin moved to Lesk last year"),
    ("There was a cello recital on the radio.", "Heard a cello recital on the radio"),
    ("Hazelnuts were on sale at the market.", "Saw hazelnuts on sale at the market"),
    ("The birch in the garden lost a branch.", "The birch in the garden lost a branch"),
    ("A ship of the Norwind line was in the news.", "Saw a ship of the Norwind line in the news"),
)
