package page_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/report/page"
)

// trends: charts of rows that ask to be looked at are drawn at once, others when
// they are unfolded; nights are read by keyboard, and a level is none; the table
// sorts, and leads to the charts; both themes and a narrow window are legible.
func trends(t *testing.T, in context.Context, records []report.Named) {
	b := open(t, in, 1280, "light", page.Extra{Trends: trendy()}, records...)
	b.keep("trends_light")
	drawn := func() (out map[string]bool) {
		b.eval(`Object.fromEntries([...document.querySelectorAll("#trends figure.chart")].map((f) => {
			const c = f.querySelector("canvas");
			if (!c || c.width < 300) return [f.dataset.chart, false];
			const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
			copy.drawImage(c, 0, 0);
			const seen = new Set(new Uint32Array(copy.getImageData(0, 0, c.width, c.height).data.buffer));
			return [f.dataset.chart, seen.size > 10];
		}))`, &out)
		return out
	}
	before := drawn()
	if len(before) != 7 || !before["trend-0"] || !before["trend-3"] || before["trend-4"] {
		t.Errorf("drawn at first: %v", before)
	}
	// The name in the table unfolds its chart and takes the focus there.
	b.run(do(`document.querySelector('#trends td a[href="#trend-4"]').focus()`), chromedp.KeyEvent(kb.Enter))
	b.until(func() bool { return drawn()["trend-4"] }, "the fifth chart is not drawn when its row is followed")
	// A night is read; the level between change points is none.
	b.run(do(`document.querySelector("#trend-0 .plot").focus()`), chromedp.KeyEvent(kb.End))
	var said string
	b.eval(`document.querySelector("#trend-0 .readout").textContent`, &said)
	if !strings.HasPrefix(said, "night 60, 2020-02-29; nights: ") || strings.Contains(said, "mean") {
		t.Errorf("it reads %q", said)
	}
	b.run(chromedp.KeyEvent(kb.ArrowLeft))
	b.eval(`document.querySelector("#trend-0 .readout").textContent`, &said)
	if !strings.HasPrefix(said, "night 59, ") {
		t.Errorf("it reads %q", said)
	}
	var first string
	b.run(do(`[...document.querySelectorAll("#trends table.trends th button")].find((e) => e.textContent === "tonight").click()`))
	b.eval(`document.querySelector("#trends table.trends tbody td a").textContent`, &first)
	if !strings.Contains(first, "resnet50/gpus=1") && !strings.Contains(first, "batch=1/") {
		t.Errorf("the smallest is %q", first)
	}
	b.fits(1280)
	b.run(chromedp.EmulateViewport(400, 900), media("", "dark"))
	b.fits(400)
	b.keep("trends_dark_narrow")
	b.contrast()
	b.run(media("", "light"))
	b.contrast()
	b.quiet()
}
