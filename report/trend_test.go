package report_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// nights is a made-up history of a row: 4 % slower from night 41 on, and on the
// last night perhaps once more.
func nights() (results.Series, []results.Change) {
	key := results.RowKey{Cell: results.DefaultCellKey(), Configuration: results.DefaultConfigurationKey(), Metric: results.SubmitTimeNs}
	key.Cell.Workload, key.Cell.Batch, key.Cell.Device, key.Cell.Kernels = "resnet50", 32, "cuda", "cudnn"
	s := results.Series{Row: key, Unit: "ns", Direction: results.Lower}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 70 {
		level := 812e3
		if i >= 40 {
			level *= 1.04
		}
		if i == 69 {
			level *= 1.03
		}
		s.Points = append(s.Points, results.Point{Sequence: i + 1, Value: level * (1 + .003*rng.NormFloat64()),
			Created: time.Date(2026, 5, 1, 2, 0, 0, 0, time.UTC).AddDate(0, 0, i)})
	}
	return s, []results.Change{
		{ChangePoint: results.ChangePoint{ID: "5ab00cd1e3", Row: key, Index: 40, Night: 41, Before: 812e3, After: 844.5e3, Slower: true}, State: results.Open},
		{ChangePoint: results.ChangePoint{ID: "77aa01b2c3", Row: key, Index: 69, Night: 70, Before: 844.5e3, After: 870e3, Slower: true, Provisional: true}, State: results.Provisional},
	}
}

func ExampleTrend() {
	s, changes := nights()
	p, _ := report.Trend(s, changes, report.About{Subtitle: []string{"A ? marks a change that the next nights may take back."}})
	var png bytes.Buffer
	if err := p.Encode(&png, report.PNG); err != nil {
		fmt.Println(err)
	} else if err := golden(p.Name, png.Bytes()); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s: %s\n", p.Name, p.Title)
	// Output: trend: submit_time_ns over nights
}

func TestTrendSVG(t *testing.T) {
	s, changes := nights()
	p, _ := report.Trend(s, changes, report.About{})
	var svg bytes.Buffer
	if err := p.Encode(&svg, report.SVG); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"5ab00cd1e3", "+4.00%", "+3.02%?", "70\u00a0nights,", "2026-05-01"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("lacks %q", want)
		}
	}
	for d := xml.NewDecoder(&svg); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Histories of any shape are drawn, or it is said why not.
func TestTrendOdd(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []float64
		why    bool
	}{
		{"one night", []float64{1e6}, false}, {"no change", []float64{1e6, 1e6}, false}, {"nothing", nil, true},
		{"no number", []float64{math.NaN(), math.Inf(1), 0, -1}, true}, {"some numbers", []float64{1, math.NaN(), 2}, false}, {"far apart", []float64{1, 1e15}, false},
	} {
		s, _ := nights()
		s.Points = nil
		for i, v := range test.values {
			s.Points = append(s.Points, results.Point{Sequence: 3 * i, Value: v})
		}
		p, why := report.Trend(s, nil, report.About{})
		if (why != "") != test.why {
			t.Errorf("%s: %q", test.name, why)
		}
		if why != "" {
			continue
		}
		if err := p.Encode(io.Discard, report.PNG); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
