package read_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

func unpacked(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// repeated is a public trace with its events written again and again until it
// has about so many bytes.
func repeated(t testing.TB, name string, size int) []byte {
	t.Helper()
	b := unpacked(t, filepath.Join(corpus(t), name))
	i := bytes.Index(b, []byte(`"traceEvents"`))
	i += bytes.IndexByte(b[i:], '[') + 1
	end := bytes.LastIndexByte(b, ']')
	events := bytes.TrimRight(b[i:end], " \n,")
	out := bytes.NewBuffer(make([]byte, 0, size+len(b)))
	out.Write(b[:i])
	for out.Len() < size {
		if out.Len() > i {
			out.WriteByte(',')
		}
		out.Write(events)
	}
	out.Write(b[end:])
	return out.Bytes()
}

func benchmark(b *testing.B, data []byte, index bool) {
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		tl, err := read.JSON(bytes.NewReader(data), "benchmark", read.Options{Strict: true})
		if err != nil {
			b.Fatal(err)
		}
		if index {
			timeline.NewIndex(tl)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"tl_b200_eager.json.gz", "kineto_tb_resnet50_nw0_a.json.gz"} {
		data := repeated(b, name, 100<<20)
		b.Run(name, func(b *testing.B) { benchmark(b, data, false) })
		b.Run(name+"/index", func(b *testing.B) { benchmark(b, data, true) })
	}
}
