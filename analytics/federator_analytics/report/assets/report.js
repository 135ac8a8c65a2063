"use strict";
{
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const isDark = () =>
    root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();
  button.hidden = false;

  const tip = document.getElementById("tip");
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("svg.chart [aria-roledescription][role='graphics-symbol']");
    const text = mark?.getAttribute("aria-label");
    if (!text || mark.classList.contains("role-axis") || mark.classList.contains("role-legend")) {
      tip.hidden = true;
      return;
    }
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - width - 8);
    const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${top}px`;
  });
}
