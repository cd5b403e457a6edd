"""Has Chromium use the page of `nstf serve` as people do, at the widths of a desktop and of a phone: python
.ci/page.py NSTF MODEL FOLDER, by pip install playwright axe-playwright-python (which brings axe-core) and Debian's
chromium. MODEL has a chat template."""

import json
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

import axe_playwright_python
from playwright.sync_api import expect, sync_playwright

KEY = "a key of this test"
SIZES = {"desktop": (1280, 800), "phone": (360, 640)}
expect.set_options(timeout=20_000)  # a busy machine; what is waited for comes within one second otherwise
AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def main(nstf, model, folder):
    keys = folder + "/page-keys"
    with open(keys, "w") as f:
        f.write(KEY + "\n")
    server = subprocess.Popen([nstf, "serve", model, "--listen", "127.0.0.1:0", "--keys", keys, "--device", "cpu", "--threads", "1", "--ctx", "512"], stderr=subprocess.PIPE, text=True)
    try:
        base = next(line.split()[-1] for line in server.stderr if line.startswith("listening on "))
        with sync_playwright() as p:
            # Chromium's sandbox wants user namespaces, which root in a container has not.
            browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            for name, (width, height) in SIZES.items():
                one(browser, server, base, name, width, height)
                print("ok", name)
            print("Chromium", browser.version)
            browser.close()
    finally:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.communicate(timeout=40)


def one(browser, server, base, name, width, height):
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=name == "phone")
    page = context.new_page()
    said, elsewhere = [], []
    page.on("console", lambda m: said.append(m.type + ": " + m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: elsewhere.append(r.url) if not r.url.startswith(base + "/") else None)
    page.on("websocket", lambda w: elsewhere.append(w.url))
    page.goto(base + "/")

    # Without a key it says so, and the console what the browser makes of 401.
    expect(page.locator("#status")).to_contain_text("API key")
    assert all("401" in s for s in said), said
    said.clear()

    # By the keyboard alone: what follows what, and the key that opens the models.
    expect(page.locator("#text")).to_be_focused()
    order = tab_order(page)
    for wanted in ["model", "new", "more", "text", "send"]:
        assert wanted in order, (wanted, order)
    focus(page, "more")
    page.keyboard.press("Enter")
    focus(page, "key")
    page.keyboard.type(KEY)
    page.keyboard.press("Tab")
    expect(page.locator("#model option")).to_have_count(1)
    assert "architecture" in page.inner_text("#facts") and "512" in page.inner_text("#facts")
    focus(page, "max")
    page.keyboard.type("12")
    focus(page, "temperature")
    page.keyboard.type("0")
    fits(page, width, name)
    accessible(page, name + ", settings")
    focus(page, "more")
    page.keyboard.press("Space")

    # Send, and it comes in pieces.
    page.evaluate("""() => { window.grown = []; new MutationObserver(() => {
        const t = document.querySelector('article.assistant:last-of-type > div')?.textContent;
        if (t && grown[grown.length - 1] !== t) grown.push(t);
    }).observe(document.getElementById('log'), { subtree: true, childList: true, characterData: true }); }""")
    focus(page, "text")
    page.keyboard.type("the quick")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("brown")
    page.keyboard.press("Enter")
    expect(page.locator("#status")).to_contain_text("tokens a second")
    assert page.inner_text("article.user > div") == "the quick\nbrown"
    answer = page.inner_text("article.assistant > div")
    grown = page.evaluate("grown")
    assert answer.strip() and len(grown) > 2 and all(b.startswith(a) for a, b in zip(grown, grown[1:])), (answer, grown)
    expect(page.locator("#text")).to_be_focused()
    fits(page, width, name)
    accessible(page, name + ", answered")

    # A second turn brings the first along.
    with page.expect_request("**/v1/chat/completions") as asked:
        page.keyboard.type("and?")
        page.keyboard.press("Enter")
    assert [m["role"] for m in json.loads(asked.value.post_data)["messages"]] == ["user", "assistant", "user"]
    expect(page.locator("#send")).to_have_text("Send")

    # Stop, by the keyboard, before anything comes: the server is held still meanwhile.
    page.locator("#max").evaluate("e => e.value = ''")
    server.send_signal(signal.SIGSTOP)
    page.keyboard.type("on")
    page.keyboard.press("Enter")
    expect(page.locator("#send")).to_have_text("Stop")
    focus(page, "send")
    page.keyboard.press("Enter")
    expect(page.locator("#send")).to_have_text("Send")
    server.send_signal(signal.SIGCONT)
    expect(page.locator("#text")).to_be_focused()

    # Stop in the midst of an answer, at its first words: they stay, and the server computes no more.
    page.evaluate("""() => { const o = new MutationObserver(() => {
        if (!document.querySelectorAll('article.assistant > div')[3]?.textContent) return;
        o.disconnect();
        document.getElementById('send').click();
    }); o.observe(document.getElementById('log'), { subtree: true, childList: true, characterData: true }); }""")
    page.keyboard.type("on")
    page.keyboard.press("Enter")
    expect(page.locator("article.assistant > div").nth(3)).to_have_text(re.compile("."))
    expect(page.locator("#send")).to_have_text("Send")
    stopped = page.locator("article.assistant > div").nth(3).inner_text()
    assert page.inner_text("#status") == "" and page.locator("article.error").count() == 0
    until(lambda: 'nstf_running{model="model"} 0' in metrics(base))
    assert page.locator("article.assistant > div").nth(3).inner_text() == stopped

    # Clear.
    focus(page, "new")
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_have_count(0)
    expect(page.locator("#text")).to_be_focused()
    with page.expect_request("**/v1/chat/completions") as asked:
        page.locator("#max").evaluate("e => e.value = '2'")
        page.keyboard.type("again")
        page.keyboard.press("Enter")
    assert len(json.loads(asked.value.post_data)["messages"]) == 1
    expect(page.locator("#status")).to_contain_text("context")
    assert not said, said
    assert not elsewhere, elsewhere
    context.close()


def metrics(base):
    with urllib.request.urlopen(urllib.request.Request(base + "/metrics", headers={"Authorization": "Bearer " + KEY})) as f:
        return f.read().decode()


def until(true):
    for _ in range(400):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("20 s are over")


def tab_order(page):
    """The ids that Tab comes to in one round."""
    order = []
    for _ in range(20):
        page.keyboard.press("Tab")
        at = page.evaluate("document.activeElement.id || document.activeElement.parentElement?.id || ''")
        if at in order:
            break
        if at:
            order.append(at)
    return order


def focus(page, wanted):
    """Tab until an element has the focus; a summary goes by its details' id."""
    for _ in range(30):
        if wanted == page.evaluate("document.activeElement.id || document.activeElement.parentElement?.id || ''"):
            return
        page.keyboard.press("Tab")
    raise AssertionError("Tab does not come to " + wanted)


def fits(page, width, name):
    """Nothing is wider than the screen, and the button can be hit."""
    wide = page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
    assert wide <= width, (name, wide)
    send = page.locator("#send").bounding_box()
    assert send["x"] >= 0 and send["x"] + send["width"] <= width and send["height"] >= 24, (name, send)


def accessible(page, name):
    """By axe-core's rules of WCAG 2.2 AA and its own advice."""
    page.evaluate(AXE + "\n;0")  # by the debugger, past the page's own policy
    found = page.evaluate("axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })")
    assert found["passes"], found
    assert not found["violations"], (name, [(v["id"], v["help"], [n["html"] for n in v["nodes"]]) for v in found["violations"]])


main(*sys.argv[1:])
