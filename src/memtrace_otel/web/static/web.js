"use strict";
// Keys of the review page, and sliders that show at once. Every page works without this script.

for (const form of document.querySelectorAll("form[data-submit]")) {
  for (const slider of form.querySelectorAll("input[type=range]")) {
    slider.addEventListener("input", () => {
      slider.parentElement.querySelector("b").textContent = slider.value;
    });
  }
  form.addEventListener("change", (event) => {
    sessionStorage.setItem("focus", event.target.name);
    form.requestSubmit();
  });
  form.elements.namedItem(sessionStorage.getItem("focus") ?? "")?.focus();
  sessionStorage.removeItem("focus");
}

const review = document.getElementById("review");
if (review) {
  const labels = { x: "not_memory", u: "cannot_tell", h: "healthy" };
  const types = [...review.querySelectorAll("input[name=label]")].map((input) => input.value);
  const operations = [...review.elements.operation].filter((one) => one.type === "radio");

  const press = (action) => {
    const button = review.querySelector(`button[value=${action}]`);
    if (button) review.requestSubmit(button);
  };
  const choose = (label) => {
    review.querySelector(`input[name=label][value="${label}"]`).checked = true;
    if (review.dataset.shown === "no") press("choose");
  };
  const move = (by) => {
    const now = operations.findIndex((one) => one.checked);
    const next = operations[Math.min(operations.length - 1, Math.max(0, now + by))];
    next.checked = true;
    next.focus();
    next.closest("li").scrollIntoView({ block: "nearest" });
  };
  const accept = () => {
    const { proposalLabel: label, proposalOperation: operation } = review.dataset;
    if (!label) return;
    choose(label);
    const found = operations.find((one) => one.value === operation);
    if (found) found.checked = true;
  };
  const second = (label) => {
    review.elements.second_label.value = label;
    review.elements.second_operation.value = operations.find((one) => one.checked).value;
  };
  review.elements.second_label.addEventListener("change", (event) => second(event.target.value));
  const tick = () => {
    const box = operations.find((one) => one.checked).closest("li").querySelector("input[type=checkbox]");
    if (box) box.checked = !box.checked;
  };
  review.querySelector("[data-accept]")?.addEventListener("click", accept);

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      return press("save");
    }
    const writing = event.target.matches("textarea, select, input:not([type=radio], [type=checkbox])");
    if (event.key === "Escape" && writing) return event.target.blur();
    if (writing || event.ctrlKey || event.altKey || event.metaKey) return;
    const digit = /^(?:Digit|Numpad)([1-8])$/.exec(event.code);
    if (digit) {
      event.preventDefault();
      const label = types[Number(digit[1]) - 1];
      return event.shiftKey ? second(label) : choose(label);
    }
    const actions = {
      j: () => move(1),
      k: () => move(-1),
      e: tick,
      c: () => review.elements.corrected.focus(),
      n: () => review.elements.note.focus(),
      z: () => document.getElementById("undo").requestSubmit(),
      "?": () => document.getElementById("help").toggleAttribute("open"),
    };
    if (event.key === "Enter" && !event.target.matches("a, button, summary")) actions.Enter = accept;
    const action = actions[event.key] ?? (labels[event.key] && (() => choose(labels[event.key])));
    if (action) {
      event.preventDefault();
      action();
    }
  });
}
