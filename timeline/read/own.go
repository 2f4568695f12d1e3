package read

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/tech-renaissance/trbench/timeline"
)

// own is what the header of timeline/write says stands behind each pid and tid.
type own struct {
	// By tid alone: timeline/write uses none twice in a file. What is on a tid
	// that is not here had no thread, or no stream.
	threads, streams map[string]int32
}

// IsOwn tells whether a file begins as one that timeline/write wrote; false too
// where it cannot be read.
func IsOwn(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	in := bufio.NewReader(f)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return false
		}
		in = bufio.NewReader(z)
	}
	// The devices' names come before it.
	head, _ := io.ReadAll(io.LimitReader(in, chunkBytes))
	return recognise(head) == isJSON && bytes.Contains(head, []byte(`"trbench":{"format":"`+timeline.FormatOwn+`"`))
}

var callWords = [...]string{"other", "launch", "graph_launch", "copy", "sync"}

type ownTrack struct {
	TIDs    []uint32 `json:"tids"`
	Process int32    `json:"process"`
	ID      string   `json:"id"`
	Name    string   `json:"name"`
}

type ownHeader struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	Source    string `json:"source"`
	From      string `json:"from"`
	Processes []struct {
		PID  uint32 `json:"pid"`
		ID   string `json:"id"`
		Name string `json:"name"`
		Rank *int   `json:"rank"`
	} `json:"processes"`
	Threads []ownTrack `json:"threads"`
	Devices []struct {
		PID  uint32 `json:"pid"`
		ID   string `json:"id"`
		Name string `json:"name"`
		Host bool   `json:"host"`
	} `json:"devices"`
	Streams []struct {
		ownTrack
		Device int32 `json:"device"`
	} `json:"streams"`
	Untimed []struct {
		Name        string `json:"name"`
		Kind        string `json:"kind"`
		Device      int32  `json:"device"`
		Stream      int32  `json:"stream"`
		Correlation int64  `json:"correlation"`
		Bytes       int64  `json:"bytes"`
		Graph       uint64 `json:"graph"`
		Node        uint64 `json:"node"`
	} `json:"untimed"`
	Read struct {
		LostEvents  int64    `json:"lost_events"`
		Dropped     *int64   `json:"dropped"`
		BadTimes    int64    `json:"bad_times"`
		Duplicates  int64    `json:"duplicates"`
		Truncated   bool     `json:"truncated"`
		NotRecorded []string `json:"not_recorded"`
		Notes       []string `json:"notes"`
	} `json:"read"`
}

// header takes timeline/write's description of the trace. What it says of a
// place that does not exist is left out: the trace is then read as any other.
func (k *kineto) header(v value) {
	var h ownHeader
	t := &k.b.T
	if err := decode(v, &h); err != nil || h.Format != timeline.FormatOwn || k.own != nil || len(t.Ops)+len(t.Calls)+len(t.Ranges) > 0 {
		t.Read.Notes = append(t.Read.Notes, "The member trbench is not what this version writes before its events; it is ignored.")
		return
	}
	o := &own{threads: map[string]int32{}, streams: map[string]int32{}}
	t.Format = timeline.FormatOwn
	for _, p := range h.Processes {
		q := timeline.Process{ID: p.ID, Name: p.Name, Rank: timeline.None}
		if p.Rank != nil && *p.Rank >= 0 {
			q.Rank = *p.Rank
		}
		k.processes[number32(p.PID)] = int32(len(t.Processes))
		t.Processes = append(t.Processes, q)
	}
	known := func(process int32) int32 {
		if process >= 0 && int(process) < len(h.Processes) {
			return process
		}
		return timeline.None
	}
	for _, th := range h.Threads {
		for _, tid := range th.TIDs {
			o.threads[number32(tid)] = int32(len(t.Threads))
		}
		t.Threads = append(t.Threads, timeline.Thread{Process: known(th.Process), ID: th.ID, Name: th.Name})
	}
	for _, d := range h.Devices {
		k.devices[d.ID] = int32(len(t.Devices))
		t.Devices = append(t.Devices, timeline.Device{ID: d.ID, Name: d.Name, Host: d.Host})
	}
	for _, s := range h.Streams {
		if s.Device < 0 || int(s.Device) >= len(h.Devices) {
			continue
		}
		for _, tid := range s.TIDs {
			o.streams[number32(tid)] = int32(len(t.Streams))
		}
		k.streams[stream{s.Device, s.ID}] = int32(len(t.Streams))
		t.Streams = append(t.Streams, timeline.Stream{Device: s.Device, Process: known(s.Process), ID: s.ID, Name: s.Name})
	}
	for _, u := range h.Untimed {
		if u.Device < 0 || int(u.Device) >= len(t.Devices) || u.Stream < 0 || int(u.Stream) >= len(t.Streams) {
			continue
		}
		op := timeline.Op{Name: k.b.Name(u.Name), Device: u.Device, Stream: u.Stream, Bytes: u.Bytes, Graph: u.Graph, Node: u.Node}
		switch u.Kind {
		case "copy":
			op.Kind = timeline.Copy
		case "fill":
			op.Kind = timeline.Fill
		case "envelope":
			op.Kind = timeline.Envelope
		}
		if u.Correlation != 0 {
			op.Correlation = k.correlation(value{raw: []byte(strconv.FormatInt(u.Correlation, 10)), kind: number})
		}
		t.Ops = append(t.Ops, op)
	}
	d := &t.Read
	d.BadTimes, d.Duplicates, d.LostEvents = h.Read.BadTimes, h.Read.Duplicates, h.Read.LostEvents
	d.Truncated, d.NotRecorded = h.Read.Truncated, h.Read.NotRecorded
	d.Notes = append(d.Notes, h.Read.Notes...)
	if h.Read.Dropped != nil {
		d.Dropped = *h.Read.Dropped
	}
	if h.Version > 1 {
		d.Notes = append(d.Notes, fmt.Sprintf("The trace has version %d, of a later trbench; what is new in it is left out.", h.Version))
	}
	k.own = o
}

func number32(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
