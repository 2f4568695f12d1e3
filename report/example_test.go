package report_test

import (
	"bytes"
	"fmt"

	"github.com/tech-renaissance/trbench/report"
)

// show prints what a caller gets, and compares each picture with the one in
// testdata, which is also the gallery.
func show(kind report.Kind, records ...report.Named) {
	pictures, absent := report.Draw(kind, records)
	for _, p := range pictures {
		fmt.Printf("%s: %s\n", p.Name, p.Title)
		var png bytes.Buffer
		if err := p.Encode(&png, report.PNG); err != nil {
			fmt.Println(err)
		} else if err := golden(p.Name, png.Bytes()); err != nil {
			fmt.Println(err)
		}
	}
	for _, a := range absent {
		fmt.Println(a)
	}
}

func ExampleDraw_stepTime() {
	show(report.StepTime, h200().named("h200.json"))
	// Output: step_time: How long is a step, by batch?
}

func ExampleDraw_speedUp() {
	show(report.SpeedUp, h200().named("h200.json"))
	// Output: speed_up: How much faster is a captured step than an eager one, by batch?
}

func ExampleDraw_hostTime() {
	show(report.HostTime, h200().named("h200.json"))
	// Output: host_time: Where does the host's time go in a step?
}

func ExampleDraw_dispatch() {
	s := h200()
	s.dispatch, s.modes = []int64{0, 5e3, 10e3, 20e3, 50e3, 100e3, 200e3}, []string{"eager/event", "step/inside"}
	show(report.Dispatch, s.named("dispatch.json"))
	// Output: dispatch: How much does capture gain on a slower host, by batch?
}

func ExampleDraw_scaling() {
	s := h200()
	s.gpus, s.batches = []int{1, 2, 4, 8}, []int{4}
	show(report.Scaling, s.named("scaling.json"))
	// Output: scaling: How do images per second grow with GPUs?
}

func ExampleDraw_preparation() {
	show(report.Preparation, h200().named("h200.json"))
	// Output: preparation: What does preparing the graphs cost, and when is it repaid?
}
