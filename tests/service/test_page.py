"""The page: in HTML first, then in a real Chromium where there is one."""

import re
import shutil
import time
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from slomo.service.api import cluster
from slomo.service.history import EVERY_S, History
from slomo.service.page import cluster_page
from slomo.service.state import journal
from slomo.service.state.store import Store
from tests.service.conftest import Running

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PATHS = ("/", "/history", "/whatif", "/jobs", "/drift", "/receipts", "/login")
#: Pages about a server that runs something; a function that does not fit fills them, too.
ASKED = ("/servers/rack1-s0", "/whatif?server=rack1-s0&add=lpm", "/whatif?server=rack1-s0&add=lpm&share=100")


class Elements(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of these names."""
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.mark.parametrize("path", PATHS)
def test_pages_need_nothing_from_elsewhere(client: TestClient, path: str) -> None:
    """Every address a page names is its own, and no script or style is written into it."""
    answer = client.get(path)
    page = Elements(answer.text)
    addresses = [item.get("href") or item.get("src") for item in page.all("a", "link", "script", "img")]

    assert answer.status_code == 200
    assert all(address and address[0] in "/#" and not address.startswith("//") for address in addresses)
    assert not page.all("style")
    assert not [item for _, item in page.elements if "style" in item or any(key.startswith("on") for key in item)]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
def test_controls_have_names_and_ids_are_given_once(client: TestClient, path: str) -> None:
    """What a screen reader needs: language, title, one h1, labels for all controls, unique ids, captions."""
    page = Elements(client.get(path).text)
    ids = [item["id"] for _, item in page.elements if "id" in item]
    labelled = {item.get("for") for item in page.all("label")}
    controls = [item for item in page.all("input", "select") if item.get("type") != "hidden"]

    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("title")) == len(page.all("main")) == 1
    assert len(ids) == len(set(ids))
    assert all(item["id"] in labelled for item in controls)
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(item.get("aria-label") for item in page.all("svg"))


def test_names_of_callers_never_become_markup(client: TestClient) -> None:
    """A request and a server with markup for a name show as text everywhere."""
    servers = [{"name": EVIL, "machine": "e5-2620v4"}]
    client.post("/v1/cluster/servers", json={"servers": servers})
    for number in range(40):  # fills the others, so that some run on the server with the name
        body = {"id": f"{EVIL}{number}", "nf": "ids", "slo": {"kind": "on-demand"}}
        assert client.post("/v1/place", json={"requests": [body]}).status_code == 200
    from urllib.parse import quote

    for path in (
        "/",
        "/whatif",
        "/receipts",
        f"/servers/{quote(EVIL, safe='')}",
        f"/whatif?server={quote(EVIL)}&add=lpm",
    ):
        page = Elements(client.get(path).text)
        assert [item.get("src") for item in page.all("script")] == ["/page.js"]
        assert not page.all("img")


def test_a_server_shows_tenants_costs_and_what_if(client: TestClient) -> None:
    """Intervals, who costs whom, and one more network function, without any script."""
    client.post(
        "/v1/place", json={"requests": [{"id": "a", "nf": "lpm", "slo": {"min_share": 0.6}}, {"id": "b", "nf": "nat"}]}
    )
    server = client.get("/v1/cluster/requests/a").json()["decision"]["assignments"][0]["server"]
    text = client.get(f"/servers/{server}").text
    assert text.count('class="bar"') == 2
    assert "Who costs whom" in text
    more = client.get("/whatif", params={"server": server, "add": "ids"}).text
    assert "What would happen" in more
    assert client.get("/servers/none").status_code == 404
    for asked, missing in (
        ({"server": "none", "add": "ids"}, "server &#x27;none"),
        ({"server": server, "add": "x"}, "&#x27;x"),
    ):
        again = client.get("/whatif", params=asked).text
        assert missing in again
        assert 'name="add"' in again, "the form stays"
    client.post("/v1/cluster/servers", json={"servers": [{"name": "bare", "machine": "silver-4110"}]})
    unmodelled = client.get("/whatif", params={"server": "bare", "add": "ids"}).text
    assert "no models for machine &#x27;silver-4110" in unmodelled
    assert 'name="add"' in unmodelled, "the form stays"


def test_what_was_observed_below_a_promise_is_told_beside_it(client: TestClient) -> None:
    """A promise that is kept by prediction and broken by outcomes does not look kept."""
    client.post("/v1/place", json={"requests": [{"id": "a", "nf": "lpm", "slo": {"min_share": 0.95}}]})
    server = client.get("/v1/cluster/requests/a").json()["decision"]["assignments"][0]["server"]
    alone = client.post("/v1/predict", json={"target": "lpm"}).json()["throughput_mpps"]
    for share, is_less in ((0.99, False), (0.1, True)):
        client.post("/v1/observations", json={"observations": [{"target": "lpm", "throughput_mpps": share * alone}]})
        assert ("but less was observed" in client.get(f"/servers/{server}").text) == is_less


def test_a_receipt_shows_what_changed_from_where_to_where(client: TestClient) -> None:
    """Placed, then removed: both lines name the server."""
    client.post("/v1/place", json={"requests": [{"id": "a", "nf": "lpm"}]})
    server = client.get("/v1/cluster/requests/a").json()["decision"]["assignments"][0]["server"]
    client.delete("/v1/cluster/requests/a")
    text = client.get("/receipts").text

    assert f"a: nowhere → {server}" in text
    assert f"a: {server} → nowhere" in text

    client.post("/v1/place", json={"requests": [{"id": f"b{number}", "nf": "lpm"} for number in range(5)]})
    text = client.get("/receipts").text
    assert "and 2 more" in text
    assert all(f"b{number}: nowhere → " in text for number in range(5))


def test_changes_of_the_cluster_are_events(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state now comes at once, another one once something has changed; a stream ends, for clients ask again."""
    monkeypatch.setattr(cluster, "LASTS_S", 0.5)
    monkeypatch.setattr(cluster, "LOOK_S", 0.01)

    def states() -> list[str]:
        return [line for line in client.get("/v1/cluster/events").text.splitlines() if line.startswith("data: ")]

    (before,) = states()
    client.post("/v1/place", json={"requests": [{"id": "a", "nf": "lpm"}]})
    assert states() != [before]


def test_what_is_laid_out_as_a_grid_is_no_table() -> None:
    """Rules for the class of tables stand in the phone's part alone: outside they tore every table above 600 px."""
    css = resources.files("slomo.service.page").joinpath("page.css").read_text(encoding="utf-8")
    wide = css.partition("@media (max-width: 860px)")[0]

    assert ".cards" not in wide
    assert ".cards, .cards tbody { display: block; }" in css


def test_drift_has_units_and_empty_pages_teach(client: TestClient) -> None:
    """How far outcomes are off is said in per cent; pages without content say how to get some."""
    for path, word in (("/jobs", "Prefer: respond-async"), ("/drift", "/v1/observations"), ("/receipts", "receipt")):
        assert word in client.get(path).text
    alone = client.post("/v1/predict", json={"target": "lpm"}).json()["throughput_mpps"]
    client.post("/v1/observations", json={"observations": [{"target": "lpm", "throughput_mpps": 0.9 * alone}]})

    assert "-10.0 %" in client.get("/drift").text


def test_the_cluster_over_time_is_kept_told_and_drawn(client: TestClient) -> None:
    """Points of what runs: an API joins them, a page draws them and has them as a table; without any, it teaches."""
    history = client.service.history  # type: ignore[attr-defined]
    assert f"every {EVERY_S:.0f} s" in client.get("/history").text
    client.post("/v1/place", json={"requests": [{"id": "a", "nf": "lpm", "slo": {"min_share": 0.6}}]})
    servers = client.portal.call(client.service.servers)  # type: ignore[attr-defined, union-attr]
    now_s = time.time()
    for ago_s, accepted in ((7200.0, 0), (1200.0, 1), (1190.0, 4), (0.0, 4)):
        history._clock = lambda at_s=now_s - ago_s: at_s
        history.take(servers if ago_s else [], {("accepted",): accepted})

    told = client.get("/v1/cluster/history?hours=1").json()["points"]
    assert [(item["accepted"], item["kept"]) for item in told] == [
        (4, 1),
        (0, 0),
    ]  # two in one point, two hours ago out
    assert told[0]["least_share"] == 1.0
    assert told[1]["least_headroom"] is None
    page = client.get("/history").text
    assert page.count('class="plot"') == 4
    assert "lowest 100 % now, from 100 % to 100 %" in page
    assert page.count('<th scope="row"') == 3
    assert client.get("/history?hours=25").status_code == client.get("/v1/cluster/history?hours=x").status_code == 422


def test_a_clock_that_is_set_back_does_not_tear_the_history(tmp_path: Path) -> None:
    """Points are told in the order of their times; those of a time to come are not told yet."""
    store = Store(tmp_path / "state.sqlite")
    times = iter((1000.0, 4000.0, 900.0, 2000.0))
    history = History(store, lambda: next(times, 2100.0))
    for _ in range(4):
        history.take([], {})
    assert [item["at_s"] for item in history.told(1)["points"]] == [900.0, 1000.0, 2000.0]
    store.close()


def test_the_history_is_bounded_and_outlives_a_restart(tmp_path: Path) -> None:
    """Only the latest points stay, in the file."""
    store = Store(tmp_path / "state.sqlite")
    for number in range(5):
        store.write(lambda opened, n=number: journal.add_point(opened, n, {"at_s": n}, 3)).result()  # type: ignore[misc]
    store.close()
    again = Store(tmp_path / "state.sqlite")
    assert [item["at_s"] for item in again.read(journal.points)] == [2, 3, 4]
    again.close()


def test_the_page_of_an_empty_cluster_shows_a_command_that_is_accepted(client: TestClient) -> None:
    """Header and body are those that the command of the page sends."""
    shown = unescape(str(cluster_page.cluster_content([], [], is_kubernetes=False)))
    (command,) = re.findall(r"curl -H '([\w-]+): ([^']+)' -d '([^']+)' \.\.\.(\S+?)<", shown)
    name, value, body, path = command

    assert client.post(path, content=body.replace("s1", "another"), headers={name: value}).status_code < 300


def test_servers_can_be_filtered(client: TestClient) -> None:
    """By name, state, machine type and network function: every server says what it is, every choice is one there is."""
    client.post("/v1/place", json={"requests": [{"id": "a", "nf": "lpm", "slo": {"min_share": 0.6}}]})
    page = Elements(client.get("/").text)
    servers = [item for item in page.all("li") if "data-runs" in item]
    assert sorted({item["data-kind"] or "" for item in servers}) == ["ample", "empty"]
    assert sorted({item["data-runs"] or "" for item in servers}) == ["", "lpm"]
    values = {item.get("value") for item in page.all("option")}
    assert {"ample", "empty", "e5-2620v4", "lpm"} <= values
    assert "broken" not in values


# --- in a real browser -----------------------------------------------------------------------------------------------

CONTRAST = """
const lum = c => { const v = c.map(x => { x /= 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
const rgb = s => { const m = s.match(/[\\d.]+/g).map(Number);
  return m.length > 3 && m[3] === 0 ? null : m.slice(0, 3); };
const back = e => {
  for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; }
  return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 22, 26] : [255, 255, 255]; };
const bad = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length || e.closest('svg, caption, .skip, option')) continue;
  const a = lum(rgb(getComputedStyle(e).color)), b = lum(back(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) bad.push(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2) + ' ' + e.textContent.slice(0, 30));
}
return bad;
"""


#: What is torn: cells whose edges are more than 2 px from those of their header, and buttons that are cut off.
TORN = """
const torn = [];
for (const table of document.querySelectorAll('table')) {
  const heads = [...table.querySelectorAll('thead th')];
  if (getComputedStyle(table.tHead).position === 'absolute') continue;
  const edges = heads.map(head => head.getBoundingClientRect());
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => {
    const box = cell.getBoundingClientRect();
    if (Math.abs(box.left - edges[at].left) > 2 || Math.abs(box.right - edges[at].right) > 2)
      torn.push(table.caption.textContent + ', column ' + at);
  });
}
for (const button of document.querySelectorAll('main button')) {
  const frame = (button.closest('.wide') || document.documentElement).getBoundingClientRect();
  if (button.getBoundingClientRect().right > frame.right + 1) torn.push('button ' + button.textContent);
}
return torn;
"""


#: Runs axe-core and tells what it found: rule, impact, number of elements.
VIOLATIONS = """
const told = arguments[arguments.length - 1];
axe.run().then(found => told(found.violations.map(rule => [rule.id, rule.impact, rule.nodes.length])),
  error => told([String(error)]));
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """Return axe-core's script as `make axe` fetched it, or skip."""
    path = Path.home() / ".cache/slomo/axe/axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not here: make axe fetches it, once")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Debian's Chromium, or skip."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: pip install 'slomo[browser]'"
    )
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium with its driver here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    from selenium.webdriver.chrome.service import Service

    made = webdriver.Chrome(options=options, service=Service(driver))
    yield made
    made.quit()


def seen(browser: Any, url: str, width: int, scheme: str) -> None:
    """Open a page at a width, light or dark."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(url)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1024, 1440, 1920, 2560])
def test_pages_are_readable_at_any_width(
    served: Running, browser: Any, width: int, scheme: str, tmp_path: Path
) -> None:
    """No torn table, script error or horizontal scroll, contrast of 4.5 and more; screenshots stay as artefacts."""
    browser.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    for path in (*PATHS, *ASKED):
        seen(browser, served.url + path, width, scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, path
        browser.save_screenshot(str(tmp_path / f"{re.sub(r'[^a-z0-9]+', '-', path)}.png"))
        assert browser.execute_script(CONTRAST) == [], path
        assert browser.execute_script(TORN) == [], path
        assert [row for row in browser.get_log("browser") if row["level"] == "SEVERE"] == [], path


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 800, 1024, 1440, 1920])
def test_axe_finds_no_fault_of_access(served: Running, browser: Any, axe: str, width: int, scheme: str) -> None:
    """No violation of any of axe-core's rules, on any page."""
    for path in (*PATHS, *ASKED):
        seen(browser, served.url + path, width, scheme)
        browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
        assert browser.execute_async_script(VIOLATIONS) == [], path


@pytest.mark.slow
def test_everything_can_be_done_by_keyboard(served: Running, browser: Any) -> None:
    """Tab reaches every link and control; Enter places, asks, and undoes."""
    from selenium.webdriver.common.keys import Keys

    seen(browser, served.url + "/", 1440, "light")
    reached = set()
    body = browser.switch_to.active_element
    for _ in range(80):
        body.send_keys(Keys.TAB)
        body = browser.switch_to.active_element
        reached.add(body.get_attribute("href") or body.get_attribute("id") or body.text)
    assert {f"{served.url}/receipts", f"{served.url}/servers/rack1-s0", "id", "nf", "share", "Place", "Show"} <= reached

    browser.find_element("id", "id").send_keys("by-keyboard", Keys.ENTER)  # the first button only asks
    waited_for(browser, "#said", "It would fit")
    browser.find_element("css selector", "form[data-action=place] button.strong").send_keys(Keys.ENTER)
    waited_for(browser, "#said", "Placed")
    assert "by-keyboard" in {item["id"] for item in httpx.get(f"{served.url}/v1/cluster/requests").json()["requests"]}
    seen(browser, served.url + "/receipts", 1440, "light")
    browser.find_element("css selector", "button[data-action=undo]").send_keys(Keys.ENTER)
    browser.switch_to.alert.accept()
    waited_for(browser, "#said", "undone")
    left = {item["id"] for item in httpx.get(f"{served.url}/v1/cluster/requests").json()["requests"]}
    assert "by-keyboard" not in left


@pytest.mark.slow
def test_filters_leave_what_was_chosen(served: Running, browser: Any) -> None:
    """A choice hides the others, is counted, stays in the address, and holds when the page is opened by it."""
    seen(browser, served.url + "/?find=rack1", 1440, "light")
    waited_for(browser, "#shown", "10 of 30 servers")
    browser.find_element("css selector", "#runs option[value=lpm]").click()
    end = time.monotonic() + 10.0
    while "runs=lpm" not in browser.current_url and time.monotonic() < end:
        time.sleep(0.05)
    assert "runs=lpm" in browser.current_url
    count = browser.execute_script("return document.querySelectorAll('.server:not([hidden])').length")
    assert 0 < count < 10
    browser.get(browser.current_url)
    waited_for(browser, "#shown", f"{count} of 30 servers")


def waited_for(browser: Any, selector: str, text: str) -> None:
    """Wait until an element says something."""
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        told = browser.find_element("css selector", selector).text
        if told and text in told:
            return
        time.sleep(0.05)
    raise AssertionError(f"{selector} never said {text!r}")
