package cupti

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fields names every offset that is read, by CUPTI's own names. The numbers
// were printed by a C program from the headers of CUDA 11.8 and 13.0.
var fields = []struct {
	record, field string
	at, want      int
}{
	{"Kernel8", "start", kernelStart, 16}, {"Kernel8", "end", kernelEnd, 24}, {"Kernel8", "deviceId", kernelDevice, 40},
	{"Kernel8", "contextId", kernelContext, 44}, {"Kernel8", "streamId", kernelStream, 48}, {"Kernel8", "gridX", kernelGrid, 52},
	{"Kernel8", "blockX", kernelBlock, 64}, {"Kernel8", "staticSharedMemory", kernelStatic, 76}, {"Kernel8", "dynamicSharedMemory", kernelDynamic, 80},
	{"Kernel8", "correlationId", kernelCorrelation, 92}, {"Kernel8", "name", kernelName, 104}, {"Kernel8", "queued", kernelQueued, 120},
	{"Kernel8", "submitted", kernelSubmitted, 128}, {"Kernel8", "graphNodeId", kernelNode, 144}, {"Kernel8", "graphId", kernelGraph, 156},
	{"API", "cbid", callCBID, 4}, {"API", "start", callStart, 8}, {"API", "end", callEnd, 16}, {"API", "processId", callProcess, 24},
	{"API", "threadId", callThread, 28}, {"API", "correlationId", callCorrelation, 32}, {"API", "returnValue", callReturn, 36},
	{"GraphTrace", "correlationId", graphCorrelation, 4}, {"GraphTrace", "start", graphStart, 8}, {"GraphTrace", "end", graphEnd, 16},
	{"GraphTrace", "deviceId", graphDevice, 24}, {"GraphTrace", "graphId", graphGraph, 28}, {"GraphTrace", "contextId", graphContext, 32},
	{"GraphTrace", "streamId", graphStream, 36},
	{"Memcpy5", "copyKind", copyKind, 4}, {"Memcpy5", "bytes", copyBytes, 8}, {"Memcpy5", "start", copyStart, 16}, {"Memcpy5", "end", copyEnd, 24},
	{"Memcpy5", "deviceId", copyDevice, 32}, {"Memcpy5", "contextId", copyContext, 36}, {"Memcpy5", "streamId", copyStream, 40},
	{"Memcpy5", "correlationId", copyCorrelation, 44}, {"Memcpy5", "graphNodeId", copyNode, 64}, {"Memcpy5", "graphId", copyGraph, 72},
	{"Memset4", "value", fillValue, 4}, {"Memset4", "bytes", fillBytes, 8}, {"Memset4", "start", fillStart, 16}, {"Memset4", "end", fillEnd, 24},
	{"Memset4", "deviceId", fillDevice, 32}, {"Memset4", "contextId", fillContext, 36}, {"Memset4", "streamId", fillStream, 40},
	{"Memset4", "correlationId", fillCorrelation, 44}, {"Memset4", "graphNodeId", fillNode, 64}, {"Memset4", "graphId", fillGraph, 72},
	{"Overhead", "overheadKind", overheadKind, 4}, {"Overhead", "start", overheadStart, 24}, {"Overhead", "end", overheadEnd, 32},
	{"Synchronization", "type", syncType, 4}, {"Synchronization", "start", syncStart, 8}, {"Synchronization", "end", syncEnd, 16},
	{"Synchronization", "correlationId", syncCorrelation, 24}, {"Synchronization", "contextId", syncContext, 28}, {"Synchronization", "streamId", syncStream, 32},
	{"Marker2", "flags", markerFlags, 4}, {"Marker2", "timestamp", markerTime, 8}, {"Marker2", "id", markerID, 16},
	{"Marker2", "objectKind", markerObjectKind, 20}, {"Marker2", "objectId", markerObject, 24}, {"Marker2", "name", markerName, 40},
	{"Marker2", "domain", markerDomain, 48},
	{"MarkerData", "flags", dataFlags, 4}, {"MarkerData", "id", dataID, 8}, {"MarkerData", "payloadKind", dataPayloadKind, 12},
	{"MarkerData", "payload", dataPayload, 16}, {"MarkerData", "color", dataColour, 24}, {"MarkerData", "category", dataCategory, 28},
}

func TestOffsets(t *testing.T) {
	for _, f := range fields {
		if f.at != f.want {
			t.Errorf("%s.%s is read at %d, the header has it at %d", f.record, f.field, f.at, f.want)
		}
	}
}

// TestHeader asks this machine's C compiler and CUPTI header, if it has both,
// about the same offsets, and the sizes of the records of CUDA 11.8.
func TestHeader(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include <cupti.h>\nint main(void) {\n")
	var want []string
	sizes := map[string]Kind{}
	for _, f := range fields {
		fmt.Fprintf(&b, "printf(\"%%zu\\n\", offsetof(CUpti_Activity%s, %s));\n", f.record, f.field)
		want = append(want, fmt.Sprint(f.at))
	}
	old := LayoutFor(18, 11080)
	for name, k := range map[string]Kind{"Kernel8": KindKernel, "API": KindDriver, "GraphTrace": KindGraphTrace, "Memcpy5": KindMemcpy, "Memset4": KindMemset,
		"Overhead": KindOverhead, "Synchronization": KindSynchronization, "Marker2": KindMarker, "MarkerData": KindMarkerData} {
		sizes[name] = k
		fmt.Fprintf(&b, "printf(\"%%zu\\n\", sizeof(CUpti_Activity%s));\n", name)
		want = append(want, fmt.Sprint(old.Size[k]))
	}
	b.WriteString("return 0;\n}\n")
	src, bin := filepath.Join(dir, "offsets.c"), filepath.Join(dir, "offsets")
	if err := os.WriteFile(src, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-w", "-I/usr/local/cuda/include", "-I/usr/local/cuda/extras/CUPTI/include", "-o", bin, src).CombinedOutput(); err != nil {
		t.Skipf("no CUPTI header to compile with: %.200s", out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] && i < len(fields) {
				t.Errorf("%s.%s is at %s, read at %s", fields[i].record, fields[i].field, got[i], want[i])
			}
		}
		t.Errorf("the header says\n%v, the layout\n%v", got, want)
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		cupti, driver, cuda                         int
		kernel, memcpy, overhead, sync, graph, data int
	}{
		{18, 11080, 11080, 200, 88, 40, 40, 48, 32},
		{18, 12000, 12000, 208, 88, 40, 40, 48, 32}, // cuptiGetVersion is 18 in 12.0 too
		{20, 12020, 12020, 208, 88, 40, 40, 48, 32},
		{21, 12030, 12030, 208, 88, 40, 40, 56, 32},
		{22, 12040, 12040, 208, 88, 56, 40, 56, 32},
		{26, 12080, 12080, 208, 96, 56, 56, 56, 32},
		{28, 13000, 12090, 208, 96, 56, 56, 56, 32}, // the library's version counts, not the driver's
		{130001, 13000, 13000, 216, 96, 56, 56, 56, 40},
		{130100, 13010, 13010, 224, 96, 56, 56, 56, 40},
		{130200, 13020, 13020, 224, 96, 56, 56, 56, 40},
	} {
		l := LayoutFor(c.cupti, c.driver)
		got := []int{l.CUDA, l.Size[KindKernel], l.Size[KindMemcpy], l.Size[KindOverhead], l.Size[KindSynchronization], l.Size[KindGraphTrace], l.Size[KindMarkerData],
			l.Size[KindMemset], l.Size[KindDriver], l.Size[KindRuntime], l.Size[KindMarker]}
		if want := []int{c.cuda, c.kernel, c.memcpy, c.overhead, c.sync, c.graph, c.data, 88, 40, 40, 56}; !slices.Equal(got, want) {
			t.Errorf("cuptiGetVersion %d, driver %d: %v, want %v", c.cupti, c.driver, got, want)
		}
		for k, n := range l.Size {
			if n < least[k] || n%8 != 0 {
				t.Errorf("%s of CUDA %d is %d bytes; %d are read", k, l.CUDA, n, least[k])
			}
		}
	}
}
