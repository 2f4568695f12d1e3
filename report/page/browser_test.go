package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
)

// chromium finds the browser; the tests skip without one. It is no part of CI's
// own set-up: its packages would take longer to install than all tests run.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium here (on Debian: apt-get install chromium), so the page's script is not tested")
	return ""
}

// browser is one process for all tests of a run; each test has a tab.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// call is a command of the browser's protocol as a step.
func call[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// media makes the browser believe in a medium and a theme of the system's.
func media(medium, theme string) chromedp.Action[chromedp.Void] {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: medium, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}

// tab is a page in the browser, with all that went wrong on it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	troubles []string
}

func (b *tab) trouble(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, fmt.Sprintf(format, args...))
}

// open writes a page and shows it in a window of a size and a theme.
func open(t *testing.T, in context.Context, width int64, theme string, extra page.Extra, records ...report.Named) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := page.WriteFile(file, records, extra); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(in)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String()
	b.run()
	err := chromedp.Listen(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			b.trouble("exception: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			b.trouble("console.%s", e.Type)
		case *log.EventEntryAdded:
			b.trouble("log: %s: %s", e.Entry.Level, e.Entry.Text)
		case *cdpage.EventJavascriptDialogOpening:
			b.trouble("dialog: %s", e.Message)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address && !strings.HasPrefix(e.Request.URL, "data:") {
				b.trouble("request: %s", e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	b.run(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}),
		chromedp.EmulateViewport(width, 900), media("", theme), chromedp.Navigate(address))
	return b
}

func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval runs an expression in the page and reads its value into out.
func (b *tab) eval(expression string, out any) {
	b.t.Helper()
	raw, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("JSON.stringify("+expression+")"))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(raw), out); err != nil {
		b.t.Fatalf("%s: %v", raw, err)
	}
}

// until waits for what a later frame brings.
func (b *tab) until(done func() bool, otherwise string) {
	b.t.Helper()
	for range 100 {
		if done() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Error(otherwise)
}

// do is a script as a step.
func do(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](script)
}

// quiet says that nothing went wrong.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.troubles {
		b.t.Error(s)
	}
}

// keep stores a picture of the page where TRBENCH_SHOTS names a folder: to be
// looked at after a change of style.
func (b *tab) keep(name string) {
	dir := os.Getenv("TRBENCH_SHOTS")
	if dir == "" {
		return
	}
	var size [2]int64
	b.eval("[innerWidth, document.documentElement.scrollHeight]", &size)
	b.run(chromedp.EmulateViewport(size[0], size[1]), chromedp.Sleep(300*time.Millisecond))
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	b.run(chromedp.EmulateViewport(size[0], 900))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Error(err)
	}
}

// TestBrowser shows pages to a browser, one tab a page.
func TestBrowser(t *testing.T) {
	in := browser(t)
	for name, records := range samples(t) {
		t.Run("shows "+name, func(t *testing.T) { shows(t, in, name, records) })
	}
	gpu := samples(t)["gpu"]
	t.Run("narrow from the start", func(t *testing.T) {
		b := open(t, in, 400, "light", page.Extra{}, gpu...)
		b.drawn(gpu)
		b.fits(400)
		b.quiet()
	})
	t.Run("keyboard", func(t *testing.T) { keyboard(t, in, gpu) })
	t.Run("sorts", func(t *testing.T) { sorts(t, in, gpu) })
	t.Run("charts", func(t *testing.T) { charts(t, in, gpu) })
	t.Run("themes", func(t *testing.T) { themes(t, in, samples(t)["cpu"]) })
	t.Run("prints", func(t *testing.T) { prints(t, in, gpu) })
	t.Run("comparison", func(t *testing.T) { comparison(t, in, gpu) })
	t.Run("trends", func(t *testing.T) { trends(t, in, samples(t)["cpu"]) })
	r := traced(t, t.TempDir(), 800)
	withMachine(r.Record)
	var extra page.Extra
	extra.Timelines, extra.TimelineNotes = page.ReadTimelines([]report.Named{r})
	t.Run("timelines shown", func(t *testing.T) { timelinesShown(t, in, extra, r) })
	t.Run("timelines", func(t *testing.T) { timelines(t, in, extra, r) })
	t.Run("durations", func(t *testing.T) { durations(t, in) })
}

// shows: in either theme, in a wide window and in a narrow one, charts are
// drawn, nothing complains or loads, nothing is wider than the window, and
// every text is legible.
func shows(t *testing.T, in context.Context, name string, records []report.Named) {
	var extra page.Extra
	if name == "gpu" {
		extra.Comparison = page.Judged(compared())
	}
	b := open(t, in, 1280, "light", extra, records...)
	file := strings.ReplaceAll(name, " ", "_")
	b.keep(file + "_light")
	b.drawn(records)
	b.fits(1280)
	b.run(chromedp.EmulateViewport(400, 900), media("", "dark"), chromedp.Sleep(50*time.Millisecond))
	b.keep(file + "_dark_narrow")
	b.drawn(records)
	b.fits(400)
	if os.Getenv("TRBENCH_SHOTS") != "" {
		b.run(chromedp.EmulateViewport(1280, 900))
		b.keep(file + "_dark")
	}
	b.contrast()
	b.run(media("", "light"))
	b.contrast()
	b.quiet()
}

// drawn says that there is a canvas for each panel, with more on it than one
// colour and its ground.
func (b *tab) drawn(records []report.Named) {
	b.t.Helper()
	var drawn []struct {
		Name   string
		Colors int
	}
	b.eval(`[...document.querySelectorAll("figure.chart canvas")].map((c) => {
		const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
		copy.drawImage(c, 0, 0);
		const seen = new Set(), d = new Uint32Array(copy.getImageData(0, 0, c.width, c.height).data.buffer);
		for (const p of d) seen.add(p);
		return { name: c.closest("figure").dataset.chart, colors: seen.size };
	})`, &drawn)
	charts, _ := report.Charts(records)
	want := 0
	for _, c := range charts {
		if want++; c.Bars != nil {
			want += len(c.Bars.Panels) - 1
		}
	}
	if len(drawn) != want {
		b.t.Errorf("%d canvases, want %d", len(drawn), want)
	}
	for _, d := range drawn {
		if d.Colors < 10 {
			b.t.Errorf("%s is drawn in %d colours", d.Name, d.Colors)
		}
	}
}

// fits says that nothing makes a window scroll sideways.
func (b *tab) fits(width float64) {
	b.t.Helper()
	var wide float64
	// Canvases follow a window's size with a later frame.
	for range 40 {
		b.eval("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)", &wide)
		if wide <= width {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if wide > width {
		b.t.Errorf("the page is %v pixels wide in a window of %v", wide, width)
	}
}

// contrastScript lists every text that is too faint on what is behind it, by
// WCAG 2.2's formula, all folds open.
const contrastScript = `(() => {
	document.querySelectorAll("details").forEach((d) => { d.open = true; });
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m.slice(0, 3), 1]; };
	const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
	const lum = (c) => { const l = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
	const behind = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
		return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255, 1]);
	};
	const seen = new Set(), faint = [];
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let texts = 0;
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, style = getComputedStyle(e);
		if (!walk.currentNode.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || style.visibility === "hidden" || !e.getClientRects().length) continue;
		texts++;
		const key = e.tagName + e.className + style.color;
		if (seen.has(key)) continue;
		seen.add(key);
		let under = behind(e), ink = e.namespaceURI.endsWith("svg") ? style.fill : style.color;
		const rect = e.tagName === "text" && e.parentElement.querySelector("rect");
		if (rect) under = parse(getComputedStyle(rect).fill);
		const a = lum(over(parse(ink), under)), b = lum(under), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < (rect ? 3 : 4.5)) faint.push(e.tagName + "." + e.getAttribute("class") + " " + walk.currentNode.data.trim().slice(0, 30) + ": " + ratio.toFixed(2));
	}
	return { texts, faint };
})()`

func (b *tab) contrast() {
	b.t.Helper()
	var out struct {
		Texts int
		Faint []string
	}
	b.eval(contrastScript, &out)
	if out.Texts < 20 {
		b.t.Errorf("only %d texts were looked at", out.Texts)
	}
	for _, f := range out.Faint {
		b.t.Errorf("too faint: %s", f)
	}
}

// focused says what has the focus.
const focused = `(() => { const e = document.activeElement; return e === document.body ? "" :
	[e.tagName, e.className, e.textContent.trim().slice(0, 40), e.getAttribute("aria-label") ?? ""].join("|"); })()`

// keyboard: every control is reached by Tab, in the order of the page, and none keeps it.
func keyboard(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "light", page.Extra{}, records...)
	var want, got []string
	b.eval(`[...document.querySelectorAll("a[href], button:not(:disabled), summary, [tabindex='0']")].filter((e) => e.checkVisibility()).map((e) =>
		[e.tagName, e.className, e.textContent.trim().slice(0, 40), e.getAttribute("aria-label") ?? ""].join("|"))`, &want)
	for range len(want) + 5 {
		b.run(chromedp.KeyEvent(kb.Tab))
		var at string
		b.eval(focused, &at)
		if at == "" {
			break
		}
		got = append(got, at)
	}
	if len(want) < 60 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("Tab reaches\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	b.quiet()
}

// sorts: Enter on a heading sorts up, then down, then as it was; figures by what they
// are, not by their letters.
func sorts(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "light", page.Extra{}, records...)
	state := func() (sort string, keys []float64) {
		var out struct {
			Sort string
			Keys []float64
		}
		b.eval(`(() => {
			const table = document.querySelector("#figures table"), heads = [...table.tHead.rows[0].cells];
			const i = heads.findIndex((th) => th.textContent === "step");
			return { sort: heads[i].getAttribute("aria-sort"), keys: [...table.tBodies[0].rows].map((r) => Number(r.cells[i].dataset.key)) };
		})()`, &out)
		return out.Sort, out.Keys
	}
	b.run(do(`[...document.querySelectorAll("#figures table th button")].find((e) => e.textContent === "step").focus()`))
	_, first := state()
	b.run(chromedp.KeyEvent(kb.Enter))
	how, up := state()
	if how != "ascending" || len(up) != 25 {
		t.Fatalf("after Enter: %s of %d rows", how, len(up))
	}
	for i := 1; i < len(up); i++ {
		if up[i] < up[i-1] {
			t.Errorf("ascending: %v", up)
			break
		}
	}
	b.run(chromedp.KeyEvent(" "))
	how, down := state()
	for i := range down {
		if how != "descending" || i > 0 && down[i] > down[i-1] {
			t.Errorf("%s: %v", how, down)
			break
		}
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	if how, last := state(); how != "none" || fmt.Sprint(last) != fmt.Sprint(first) {
		t.Errorf("%s: %v, was %v", how, last, first)
	}
	// A column without figures sorts by its words, numbers in them as numbers.
	b.run(do(`[...document.querySelectorAll("#figures table th button")].find((e) => e.textContent === "batch").click()`))
	var batches []string
	b.eval(`[...document.querySelectorAll("#figures table tbody tr")].map((r) => r.cells[1].textContent)`, &batches)
	if batches[0] != "1" || batches[len(batches)-1] != "256" {
		t.Errorf("batches: %v", batches)
	}
	b.quiet()
}

// axes are what a chart shows.
type axes struct {
	XMin, XMax, YMin, YMax float64
	YType                  string
}

func (b *tab) axes(chart string) (out axes) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`(({ x, y }) => ({ xmin: x.min, xmax: x.max, ymin: y.min, ymax: y.max, ytype: y.type }))(Chart.getChart(document.querySelector("[data-chart=%s] canvas")).scales)`, chart), &out)
	return out
}

// charts: values are read by keyboard and by pointer, and are the record's; a chart
// zooms, moves, changes its scale, and comes back.
func charts(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "light", page.Extra{}, records...)
	data := dataOf(t, parse(t, write(t, page.Extra{}, records...)))
	step := chart(t, data, "step_time").Lines
	readout := func(of string) (out string) {
		b.eval(fmt.Sprintf(`document.querySelector("[data-chart=%s] .readout").textContent`, of), &out)
		return out
	}
	focus := func(of string) {
		b.run(do(fmt.Sprintf(`document.querySelector("[data-chart=%s] .plot").focus()`, of)))
	}
	at := func(i int) string {
		words := []string{"batch " + step.Series[0].Points[i].XText}
		for _, s := range step.Series {
			words = append(words, s.Label+": "+s.Points[i].Text)
		}
		return strings.Join(words, "; ")
	}
	focus("step_time")
	last := len(step.Series[0].Points) - 1
	for i, key := range []struct {
		press string
		want  int
	}{{kb.ArrowRight, 0}, {kb.ArrowRight, 1}, {kb.ArrowLeft, 0}, {kb.ArrowLeft, 0}, {kb.End, last}, {kb.ArrowRight, last}, {kb.Home, 0}} {
		b.run(chromedp.KeyEvent(key.press))
		if got := readout("step_time"); got != at(key.want) {
			t.Errorf("key %d reads %q, want %q", i, got, at(key.want))
		}
	}
	b.run(chromedp.KeyEvent(kb.Escape))
	if got := readout("step_time"); got != "" {
		t.Errorf("after Escape it reads %q", got)
	}

	whole := b.axes("step_time")
	resets := func(what string) {
		t.Helper()
		var disabled bool
		b.eval(`document.querySelector("[data-chart=step_time] [data-do=reset]").disabled`, &disabled)
		if b.axes("step_time") == whole || disabled {
			t.Errorf("%s changes nothing: %+v, reset disabled %v", what, whole, disabled)
		}
		b.run(chromedp.KeyEvent("0"))
		b.eval(`document.querySelector("[data-chart=step_time] [data-do=reset]").disabled`, &disabled)
		if got := b.axes("step_time"); got != whole || !disabled {
			t.Errorf("0 after %s shows %+v, not %+v; reset disabled %v", what, got, whole, disabled)
		}
	}
	b.run(chromedp.KeyEvent("+"))
	if got := b.axes("step_time"); math.Log(got.XMax/got.XMin) >= math.Log(whole.XMax/whole.XMin) {
		t.Errorf("+ shows %+v of %+v", got, whole)
	}
	resets("+")
	b.run(chromedp.KeyEvent("-"))
	resets("-")
	b.run(chromedp.KeyEvent("+"), chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(kb.ModifierShift)))
	resets("Shift and an arrow")
	b.run(chromedp.KeyEvent("l"))
	if got := b.axes("step_time"); got.YType != "linear" || got.YMin != 0 || whole.YType != "logarithmic" {
		t.Errorf("L shows %+v", got)
	}
	b.run(chromedp.KeyEvent("l"))
	if got := b.axes("step_time"); got != whole {
		t.Errorf("L twice shows %+v, not %+v", got, whole)
	}

	// By pointer: the values at a point, and a drag over a part.
	var box struct{ X, Y, W, H, PX, PY float64 }
	b.eval(`(() => {
		const canvas = document.querySelector("[data-chart=step_time] canvas");
		canvas.scrollIntoView({ block: "center" });
		const r = canvas.getBoundingClientRect(), p = Chart.getChart(canvas).getDatasetMeta(0).data[1];
		return { x: r.x, y: r.y, w: r.width, h: r.height, px: p.x, py: p.y };
	})()`, &box)
	b.run(chromedp.MouseEvent("mouseMoved", box.X+box.PX, box.Y+box.PY))
	var tip struct {
		Opacity float64
		Lines   []string
	}
	b.eval(`(({ opacity, body }) => ({ opacity, lines: (body ?? []).map((l) => l.lines.join("").trim()) }))(Chart.getChart(document.querySelector("[data-chart=step_time] canvas")).tooltip)`, &tip)
	if tip.Opacity != 1 || strings.Join(tip.Lines, "; ") != strings.TrimPrefix(at(1), "batch 4; ") {
		t.Errorf("the tooltip is %+v", tip)
	}
	b.run(chromedp.MouseEvent("mousePressed", box.X+box.W*0.4, box.Y+box.H*0.3, chromedp.Button("left"), chromedp.ClickCount(1)),
		chromedp.MouseEvent("mouseMoved", box.X+box.W*0.6, box.Y+box.H*0.6, chromedp.Button("left")),
		chromedp.MouseEvent("mouseReleased", box.X+box.W*0.6, box.Y+box.H*0.6, chromedp.Button("left"), chromedp.ClickCount(1)))
	time.Sleep(50 * time.Millisecond)
	if got := b.axes("step_time"); got.XMin <= whole.XMin || got.XMax >= whole.XMax {
		t.Errorf("a drag shows %+v of %+v", got, whole)
	}
	focus("step_time")
	resets("a drag")

	// A line that is not asked for is neither drawn nor read.
	b.run(do(`document.querySelector("[data-chart=step_time] .legend button").click()`))
	focus("step_time")
	b.run(chromedp.KeyEvent(kb.Home))
	if got := readout("step_time"); strings.Contains(got, "eager/event") || !strings.Contains(got, "eager/host") {
		t.Errorf("without the first line it reads %q", got)
	}

	// Bars: the parts, and the words beside them.
	host := chart(t, data, "host_time").Bars
	focus("host_time")
	b.run(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	bar := host.Panels[0].Bars[1]
	got := readout("host_time")
	for _, s := range bar.Segments {
		if !strings.Contains(got, host.Parts[s.Part].Name+": "+s.Text) {
			t.Errorf("a bar reads %q, without %q", got, s.Text)
		}
	}
	if !strings.HasPrefix(got, "batch 1, eager/host; ") || !strings.Contains(got, "step: "+bar.Remarks[2]) {
		t.Errorf("a bar reads %q", got)
	}
	b.quiet()
}

// themes: the buttons override the system's theme, and charts follow.
func themes(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "light", page.Extra{}, records...)
	colors := func() (out [3]string) {
		b.eval(`[getComputedStyle(document.body).backgroundColor, Chart.getChart(document.querySelector("canvas")).data.datasets[0].borderColor,
			document.querySelector(".themes [aria-pressed=true]").textContent]`, &out)
		return out
	}
	light := colors()
	b.run(chromedp.Click(chromedp.CSS(`[data-theme-choice=dark]`)))
	dark := colors()
	if dark[0] == light[0] || dark[1] == light[1] || dark[2] != "Dark" || light[2] != "Auto" {
		t.Errorf("light %q, dark %q", light, dark)
	}
	b.contrast()
	b.run(chromedp.Click(chromedp.CSS(`[data-theme-choice=auto]`)), media("", "dark"))
	// The page hears of it with the next frame.
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](fmt.Sprintf("Chart.getChart(document.querySelector('canvas')).data.datasets[0].borderColor === %q", dark[1]))); err != nil {
		t.Error(err)
	}
	if got := colors(); got[0] != dark[0] || got[1] != dark[1] || got[2] != "Auto" {
		t.Errorf("a dark system shows %q, not %q", got, dark)
	}
	b.quiet()
}

// prints: on paper, the page is light, whatever the theme, and has its charts.
func prints(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "dark", page.Extra{}, records...)
	b.run(media("print", "dark"))
	var got [3]string
	b.eval(`[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector("nav")).display, getComputedStyle(document.querySelector(".scroll")).overflowX]`, &got)
	if got != [3]string{"rgb(255, 255, 255)", "none", "visible"} {
		t.Errorf("on paper: %q", got)
	}
	b.run(chromedp.EmulateViewport(1030, 900), chromedp.Sleep(50*time.Millisecond))
	b.keep("paper")
	b.fits(1030)
	pdf, err := chromedp.Run(b.ctx, chromedp.PrintToPDF())
	if err != nil {
		t.Fatal(err)
	}
	if len(pdf) < 50_000 {
		t.Errorf("the paper has %d bytes", len(pdf))
	}
	if dir := os.Getenv("TRBENCH_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "print.pdf"), pdf, 0o644); err != nil {
			t.Error(err)
		}
	}
	b.quiet()
}

// comparison: a row of the table leads to its numbers, by keyboard too, out of their
// folds; rows sort by their change.
func comparison(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "light", page.Extra{Comparison: page.Judged(compared())}, records...)
	b.run(do(`document.querySelector('a[href="#row-2"]').focus()`), chromedp.KeyEvent(kb.Enter))
	var got []any
	const state = `(() => { const e = document.getElementById("row-2"); return [e.open, e.parentElement.open, document.activeElement === e.querySelector("summary"), e.querySelector("dl").checkVisibility()]; })()`
	b.eval(state, &got)
	if fmt.Sprint(got) != "[true true true true]" {
		t.Errorf("a row's link leads to %v", got)
	}
	// Closed again, the same link opens it again.
	b.run(do(`document.getElementById("row-2").open = false`), do(`document.querySelector('a[href="#row-2"]').click()`))
	if b.eval(state, &got); fmt.Sprint(got) != "[true true true true]" {
		t.Errorf("the second time a row's link leads to %v", got)
	}
	b.run(do(`[...document.querySelectorAll("#comparison th button")].find((e) => e.textContent === "change").click()`))
	var sorted []string
	b.eval(`[...[...document.querySelectorAll("#comparison table")].find((t) => t.tHead.textContent.includes("change")).tBodies[0].rows].map((r) => r.cells[4].textContent)`, &sorted)
	if want := []string{"-50.00%", "+0.01%", "+2.00%", "+10.00%", "x25"}; fmt.Sprint(sorted) != fmt.Sprint(want) {
		t.Errorf("changes sort as %q, want %q", sorted, want)
	}
	b.fits(1280)
	b.quiet()
}

// timelinesShown: in either theme, in a wide window and in a narrow one, lanes are
// drawn for each configuration, nothing is wider than the window, and every text is
// legible.
func timelinesShown(t *testing.T, in context.Context, extra page.Extra, record report.Named) {
	b := open(t, in, 1280, "light", extra, record)
	drawn := func(what string) {
		t.Helper()
		var colors []int
		b.eval(`[...document.querySelectorAll("figure.timeline canvas")].map((c) => {
			const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
			copy.drawImage(c, 0, 0);
			return new Set(new Uint32Array(copy.getImageData(0, 0, c.width, c.height).data.buffer)).size;
		})`, &colors)
		if len(colors) != len(extra.Timelines) {
			t.Errorf("%s: %d canvases for %d timelines", what, len(colors), len(extra.Timelines))
		}
		for i, n := range colors {
			if n < 10 {
				t.Errorf("%s: timeline %d is drawn in %d colours", what, i, n)
			}
		}
	}
	drawn("light")
	b.fits(1280)
	b.keep("timelines_light")
	b.contrast()
	b.run(media("", "dark"), chromedp.Sleep(100*time.Millisecond))
	b.keep("timelines_dark")
	b.contrast()
	b.run(chromedp.EmulateViewport(400, 900), chromedp.Sleep(100*time.Millisecond))
	drawn("dark and narrow")
	b.fits(400)
	b.keep("timelines_dark_narrow")
	b.run(media("print", "dark"), chromedp.EmulateViewport(1030, 900), chromedp.Sleep(100*time.Millisecond))
	b.keep("timelines_paper")
	b.fits(1030)
	b.quiet()
}

// timelines: what is read by keyboard and by pointer is what was recorded; a timeline
// zooms to a single gap in every way, moves, and comes back.
func timelines(t *testing.T, in context.Context, extra page.Extra, record report.Named) {
	b := open(t, in, 1280, "light", extra, record)
	first := extra.Timelines[0]
	g := first.Gaps
	length := func(i int) int64 { return g.LateNs[i] + g.APINs[i] + g.AfterNs[i] + g.UnlinkedNs[i] }
	precisely := func(ns int64) string {
		if ns < 1000 && ns > -1000 {
			return fmt.Sprintf("%d ns", ns)
		}
		return fmt.Sprintf("%s (%d ns)", report.SignedDuration(float64(ns)), ns)
	}
	gap := func(i int) string {
		words := []string{"GPU: Gap of " + precisely(length(i)), "starts at " + precisely(g.StartNs[i])}
		for k, ns := range []int64{g.LateNs[i], g.APINs[i], g.AfterNs[i], g.UnlinkedNs[i]} {
			if ns == 0 {
				continue
			}
			line := page.GapCauses()[k] + ": " + precisely(ns)
			if k == 0 && g.DoingNs[i] > 0 {
				line += ", of it " + precisely(g.DoingNs[i]) + " in " + first.Names[g.Doing[i]]
			}
			words = append(words, line)
		}
		return strings.Join(append(words, "after "+first.Names[g.Before[i]]+", before "+first.Names[g.After[i]]), "; ")
	}
	span := func(lane, i int) string {
		l := first.Lanes[lane]
		return fmt.Sprintf("%s: %s; %s, %s; starts at %s", l.Title, first.Names[l.Name[i]], precisely(l.LengthNs[i]), page.SpanKinds()[l.Kind[i]], precisely(l.StartNs[i]))
	}
	var order []int
	for i, start := range g.StartNs {
		if start >= 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return int(length(y) - length(x)) })
	readout := func() (out string) {
		b.eval(`document.querySelector(".traced .readout").textContent`, &out)
		return out
	}
	view := func() (from, to int64) {
		var out [2]int64
		b.run(chromedp.Sleep(40 * time.Millisecond))
		b.eval(`document.querySelector("figure.timeline .lanes").dataset.view.split(" ").map(Number).map(Math.round)`, &out)
		return out[0], out[1]
	}
	whole := func() bool {
		from, to := view()
		var disabled bool
		b.eval(`document.querySelector("figure.timeline [data-do=reset]").disabled`, &disabled)
		return disabled && from <= first.FromNs && to >= first.LengthNs
	}
	if !whole() {
		t.Error("at first not all is shown")
	}
	b.run(do(`document.querySelector("figure.timeline .lanes").focus()`))
	check := func(what, want string) {
		t.Helper()
		if got := readout(); got != want {
			t.Errorf("%s reads %q, want %q", what, got, want)
		}
	}
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	check("the first key", gap(0))
	b.run(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowLeft))
	check("two right, one left", gap(1))
	b.run(chromedp.KeyEvent(kb.End))
	check("End", gap(len(g.StartNs)-1))
	b.run(chromedp.KeyEvent(kb.Home))
	check("Home", gap(0))
	b.run(chromedp.KeyEvent("g"))
	check("G", gap(order[0]))
	b.run(chromedp.KeyEvent("g"))
	check("G again", gap(order[1]))

	// Enter: the gap fills more than half of what is shown.
	b.run(chromedp.KeyEvent(kb.Enter))
	if from, to := view(); from > g.StartNs[order[1]] || to < g.StartNs[order[1]]+length(order[1]) || to-from > 2*length(order[1]) || whole() {
		t.Errorf("Enter shows %d to %d, the gap is at %d for %d ns", from, to, g.StartNs[order[1]], length(order[1]))
	}
	check("Enter", gap(order[1]))
	b.keep("timelines_zoomed")
	f0, t0 := view()
	b.run(chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(kb.ModifierShift)))
	if from, to := view(); from <= f0 || to-from < t0-f0-2 || to-from > t0-f0+2 {
		t.Errorf("Shift and an arrow shows %d to %d, was %d to %d", from, to, f0, t0)
	}
	b.run(chromedp.KeyEvent("-"))
	if from, to := view(); to-from <= t0-f0 {
		t.Errorf("- shows %d to %d, was %d to %d", from, to, f0, t0)
	}
	b.run(chromedp.KeyEvent("0"))
	if !whole() {
		t.Error("0 does not show the whole")
	}
	b.run(chromedp.KeyEvent("+"))
	if whole() {
		t.Error("+ changes nothing")
	}
	b.run(chromedp.KeyEvent("0"), chromedp.KeyEvent(kb.Escape))
	check("Escape", "")

	// Lanes: down from the host to the streams; each reads its spans.
	b.run(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Home))
	check("the first lane", span(0, 0))
	b.run(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Home))
	check("the second lane", span(1, 0))
	b.run(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Home))
	check("the first stream", span(2, 0))
	b.run(chromedp.KeyEvent(kb.ArrowRight))
	check("its second kernel", span(2, 1))

	// By pointer: the button zooms to the longest gap, where the pointer reads it; a
	// drag and the wheel zoom.
	b.run(do(`document.querySelector("figure.timeline [data-do=longest]").click()`))
	var at int // the figure's longest gap may be of another timeline
	b.eval(`[...document.querySelectorAll("figure.timeline .lanes")].indexOf(document.activeElement)`, &at)
	var longest int64
	for _, l := range extra.Timelines[:5] {
		for i, start := range l.Gaps.StartNs {
			if start >= 0 {
				longest = max(longest, l.Gaps.LateNs[i]+l.Gaps.APINs[i]+l.Gaps.AfterNs[i]+l.Gaps.UnlinkedNs[i])
			}
		}
	}
	var text string
	b.eval(`document.activeElement.nextElementSibling.textContent`, &text)
	if at != 0 || !strings.HasPrefix(text, "GPU: Gap of "+precisely(longest)) || text != gap(order[0]) {
		t.Errorf("the longest gap, of timeline %d, is %q, want %s", at, text, precisely(longest))
	}
	from, to := view()
	var box struct{ X, Y, W, Lane float64 }
	measure := func() {
		b.eval(`(() => {
			const c = document.querySelector("figure.timeline canvas");
			c.scrollIntoView({ block: "center" });
			const r = c.getBoundingClientRect();
			return { x: r.x + 104, y: r.y, w: r.width - 114, lane: r.y + 6 + 2 * 21 + 15 };
		})()`, &box)
	}
	measure()
	x := func(ns int64) float64 { return box.X + float64(ns-from)/float64(to-from)*box.W }
	middle := g.StartNs[order[0]] + length(order[0])/2
	b.run(chromedp.MouseEvent("mouseMoved", x(middle), box.Lane))
	b.eval(`[...document.querySelectorAll("figure.timeline .tip")[0].children].map((p) => p.textContent).join("; ")`, &text)
	if "GPU: "+text != gap(order[0]) {
		t.Errorf("the pointer reads %q, want %q", text, gap(order[0]))
	}
	b.run(chromedp.MouseEvent("mousePressed", x(from+(to-from)/4), box.Lane, chromedp.Button("left"), chromedp.ClickCount(1)),
		chromedp.MouseEvent("mouseMoved", x(from+(to-from)/2), box.Lane, chromedp.Button("left")),
		chromedp.MouseEvent("mouseReleased", x(from+(to-from)/2), box.Lane, chromedp.Button("left"), chromedp.ClickCount(1)))
	if f1, t1 := view(); math.Abs(float64(f1-from-(to-from)/4)) > float64(to-from)/50 || math.Abs(float64(t1-from-(to-from)/2)) > float64(to-from)/50 {
		t.Errorf("a drag over the second quarter of %d to %d shows %d to %d", from, to, f1, t1)
	}
	b.run(do(`document.querySelector("figure.timeline [data-do=reset]").click()`))
	if !whole() {
		t.Error("the button does not show the whole")
	}
	measure()
	wheel := func(modifier string) {
		b.run(do(fmt.Sprintf(`(() => { const c = document.querySelector("figure.timeline canvas"), r = c.getBoundingClientRect();
			c.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, %s: true, clientX: r.x + 104 + (r.width - 114) / 4, clientY: r.y + 60, cancelable: true, bubbles: true })); })()`, modifier)))
	}
	from, to = view()
	wheel("bubbles")
	if !whole() {
		t.Error("the wheel alone zooms, where it should scroll the page")
	}
	wheel("ctrlKey")
	if f1, t1 := view(); whole() || math.Abs(float64(f1)+float64(t1-f1)/4-(float64(from)+float64(to-from)/4)) > float64(to-from)/200 {
		t.Errorf("the wheel shows %d to %d of %d to %d: what is under the pointer moves", f1, t1, from, to)
	}
	b.run(do(`document.querySelector("figure.timeline canvas").dispatchEvent(new MouseEvent("dblclick"))`))
	if !whole() {
		t.Error("a double click does not show the whole")
	}
	b.quiet()
}

// durations: the script rounds as the tables do.
func durations(t *testing.T, in context.Context) {
	values := []int64{0, 1, 9, 999, 1000, 1005, 1115, 1125, 1135, 9994, 9995, 9996, 12_345, 12_350, 12_250, 99_949, 99_950, 99_951, 123_456, 999_499, 999_500, 1_000_000,
		1_125_000, 1_375_000, 2_500_500, 99_950_000, 123_500_000, 124_500_000, 999_499_999, 999_500_000, 1_250_000_000}
	line := page.Timeline{Cell: "a", Configuration: "b", Names: []string{"k"}, LengthNs: 2_000_000_000, Lanes: []page.Lane{{Title: "s", Clock: "device"}}}
	l := &line.Lanes[0]
	for i, v := range values {
		l.StartNs, l.LengthNs, l.Name, l.Kind = append(l.StartNs, int64(i)), append(l.LengthNs, v), append(l.Name, 0), append(l.Kind, 0)
	}
	b := open(t, in, 1280, "light", page.Extra{Timelines: []page.Timeline{line}}, samples(t)["gpu"]...)
	b.run(do(`document.querySelector("figure.timeline .lanes").focus()`), chromedp.KeyEvent(kb.ArrowRight))
	for i, v := range values {
		var got string
		b.eval(`document.querySelector(".traced .readout").textContent`, &got)
		want := fmt.Sprintf("; %s (%d ns), kernel;", report.SignedDuration(float64(v)), v)
		if v > -1000 && v < 1000 {
			want = fmt.Sprintf("; %d ns, kernel;", v)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%d: %d ns reads %q, want %q", i, v, got, want)
		}
		b.run(chromedp.KeyEvent(kb.ArrowRight))
	}
	b.quiet()
}
