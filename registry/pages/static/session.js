// Signing in and out, and copying a command.
"use strict";

document.addEventListener("submit", async (event) => {
  if (!event.target.matches("[data-sign-in]")) return;
  event.preventDefault();
  const said = document.getElementById("said");
  const token = new FormData(event.target).get("token").trim();
  try {
    const answer = await fetch("/login", { method: "POST", headers: { authorization: `Bearer ${token}` } });
    if (answer.ok) location.assign(event.target.dataset.signIn);
    else said.textContent = (await answer.json()).detail;
  } catch {
    said.textContent = "The server does not answer, or the token has characters that none has.";
  }
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button === null) return;
  if (button.matches("[data-sign-out]")) {
    await fetch("/logout", { method: "POST" });
    location.assign("/sign-in");
  }
  if (button.matches("[data-copy]")) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }
});
