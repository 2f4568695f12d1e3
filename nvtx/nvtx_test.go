package nvtx

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// compile builds the logging tool with some of its defines; the second result
// reads its log, thread numbers replaced by "here" and "there".
func compile(t testing.TB, defines ...string) (path string, log func() string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) on the PATH: the logging tool cannot be compiled")
	}
	dir := t.TempDir()
	path, file := filepath.Join(dir, "tool.so"), filepath.Join(dir, "log")
	args := []string{"-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-O1", "-shared", "-fPIC", "-o", path, `-DLOG="` + file + `"`}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out, err := exec.Command(cc, append(args, filepath.Join("testdata", "tool.c"))...).CombinedOutput(); err != nil {
		t.Fatalf("compile the tool: %v\n%s", err, out)
	}
	return path, func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		here := strconv.Itoa(syscall.Gettid())
		number := regexp.MustCompile(`(?m)^\d+ `)
		named := regexp.MustCompile(`(NameOsThreadA) ` + here + `\b`)
		text := number.ReplaceAllStringFunc(string(b), func(s string) string {
			if s == here+" " {
				return "here "
			}
			return "there "
		})
		return named.ReplaceAllString(text, "$1 HERE")
	}
}

// attach opens a compiled tool on this locked thread.
func attach(t testing.TB, defines ...string) (*Client, func() string) {
	t.Helper()
	path, log := compile(t, defines...)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	c, err := Open(path, "trbench")
	if err != nil {
		t.Fatal(err)
	}
	if c.Tool() != path {
		t.Errorf("attached %q, want %q", c.Tool(), path)
	}
	return c, log
}

// everything drives all that a client can do.
func everything(c *Client) {
	c.NameThread("rank 0")
	c.NameCuDevice(2, "rank 0")
	c.NameCuStream(0xabc0, "rank 0 COMP_1")
	step := c.Range("step", Look{Category: "step", Color: 0xff76b900})
	deep := c.Range("DEEP_FWD_BWD", Look{Category: "sub-graph"})
	again := c.Range("step", Look{Category: "step", Color: 0xff112233})
	plain := c.Range("plain", Look{})
	step.PushInt(41)
	deep.Push()
	again.PushInt(-7)
	again.Pop()
	deep.Pop()
	plain.Push()
	plain.Pop()
	step.Pop()
	plain.Mark()
	step.MarkInt(1 << 40)
	step.MarkFloat(0.5)
	block := c.StartInt("block", Look{Category: "measure", Color: 0x80ffffff}, 3)
	inner := plain.Start()
	done := make(chan bool)
	go func() {
		runtime.LockOSThread() // another one than the caller's
		block.End()
		close(done)
	}()
	<-done
	inner.End()
	c.Start("verify", Look{}).End()
	Span{}.End()
	c.Close()
}

// offered is how every tool finds the tables.
const offered = `there callbacks 16, version 24: 3, others NULL
there module 1: 1, 16 functions, first NULL, last NULL
there module 2: 1, 9 functions, first NULL, last NULL
there module 5: 1, 16 functions, first NULL, last NULL
there modules 0 and 7: 0 0
`

func TestTools(t *testing.T) {
	for _, test := range []struct {
		name    string
		defines []string
		want    string
	}{
		{"all", nil, `here DomainCreateA 'trbench'
here NameOsThreadA HERE 'rank 0'
here NameCuDeviceA 2 'rank 0'
here NameCuStreamA 0xabc0 'rank 0 COMP_1'
here DomainNameCategoryA trbench 1 'step'
here DomainRegisterStringA trbench 'step'
here DomainNameCategoryA trbench 2 'sub-graph'
here DomainRegisterStringA trbench 'DEEP_FWD_BWD'
here DomainRegisterStringA trbench 'plain'
here DomainRangePushEx trbench handle 'step' category 1 color FF76B900 i64 41
here DomainRangePushEx trbench handle 'DEEP_FWD_BWD' category 2
here DomainRangePushEx trbench handle 'step' category 1 color FF112233 i64 -7
here DomainRangePop trbench
here DomainRangePop trbench
here DomainRangePushEx trbench handle 'plain'
here DomainRangePop trbench
here DomainRangePop trbench
here DomainMarkEx trbench handle 'plain'
here DomainMarkEx trbench handle 'step' category 1 color FF76B900 i64 1099511627776
here DomainMarkEx trbench handle 'step' category 1 color FF76B900 double 0.5
here DomainNameCategoryA trbench 3 'measure'
here DomainRegisterStringA trbench 'block'
here DomainRangeStartEx trbench handle 'block' category 3 color 80FFFFFF i64 3 = 1099511627877
here DomainRangeStartEx trbench handle 'plain' = 1099511627878
there DomainRangeEnd trbench 1099511627877
here DomainRangeEnd trbench 1099511627878
here DomainRegisterStringA trbench 'verify'
here DomainRangeStartEx trbench handle 'verify' = 1099511627879
here DomainRangeEnd trbench 1099511627879
here DomainDestroy trbench
`},
		{"no domains", []string{"CORE_ONLY"}, `here NameOsThreadA HERE 'rank 0'
here NameCategoryA 1 'step'
here NameCategoryA 2 'sub-graph'
here RangePushEx text 'step' category 1 color FF76B900 i64 41
here RangePushEx text 'DEEP_FWD_BWD' category 2
here RangePushEx text 'step' category 1 color FF112233 i64 -7
here RangePop
here RangePop
here RangePushEx text 'plain'
here RangePop
here RangePop
here MarkEx text 'plain'
here MarkEx text 'step' category 1 color FF76B900 i64 1099511627776
here MarkEx text 'step' category 1 color FF76B900 double 0.5
here NameCategoryA 3 'measure'
here RangeStartEx text 'block' category 3 color 80FFFFFF i64 3 = 101
here RangeStartEx text 'plain' = 102
there RangeEnd 101
here RangeEnd 102
here RangeStartEx text 'verify' = 103
here RangeEnd 103
`},
		{"no functions", []string{"NOTHING"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, log := attach(t, test.defines...)
			if c.Deaf() != (test.name == "no functions") {
				t.Errorf("deaf: %v", c.Deaf())
			}
			everything(c)
			compare(t, log(), offered+test.want)
		})
	}
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("line %d of the tool's log is\n%s\nwant\n%s\nall of it:\n%s", i+1, a, b, got)
		}
	}
}

// A tool that takes pushes in domains but leaves their pops alone gets both
// without a domain, and names as text, since handles belong to a domain.
func TestHalfATool(t *testing.T) {
	c, log := attach(t, "HALF")
	r := c.Range("step", Look{Category: "step"})
	r.Push()
	r.Pop()
	r.Start().End()
	compare(t, log(), offered+`here DomainCreateA 'trbench'
here DomainNameCategoryA trbench 1 'step'
here NameCategoryA 1 'step'
here RangePushEx text 'step' category 1
here RangePop
here DomainRangeStartEx trbench text 'step' category 1 = 1099511627877
here DomainRangeEnd trbench 1099511627877
`)
}

// A tool that registers nothing gets names as text.
func TestNoHandles(t *testing.T) {
	c, log := attach(t, "NO_REGISTER")
	for range 2 {
		r := c.Range("step", Look{})
		r.Push()
		r.Pop()
	}
	compare(t, log(), offered+`here DomainCreateA 'trbench'
here DomainRegisterStringA trbench 'step'
here DomainRangePushEx trbench text 'step'
here DomainRangePop trbench
here DomainRangePushEx trbench text 'step'
here DomainRangePop trbench
`)
}

func TestRefusedTools(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o666); err != nil {
		t.Fatal(err)
	}
	built := func(define string) func(t *testing.T) string {
		return func(t *testing.T) string { path, _ := compile(t, define); return path }
	}
	at := func(path string) func(*testing.T) string { return func(*testing.T) string { return path } }
	for _, test := range []struct {
		name string
		path func(*testing.T) string
		want string // behind the path
		is   error
	}{
		{"no file", at(filepath.Join(dir, "none.so")), "it could not be opened", os.ErrNotExist},
		{"no library", at(text), "it could not be opened", os.ErrNotExist},
		{"a folder", at(dir), "it could not be opened", os.ErrNotExist},
		{"no symbol", built("NO_SYMBOL"), "it has no function InitializeInjectionNvtx2", dl.ErrNoSymbol},
		{"failure", built("FAIL"), "its InitializeInjectionNvtx2 returned 0, not 1", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := test.path(t)
			c, err := Open(path, "trbench")
			var a *AttachError
			if c != nil || !errors.As(err, &a) || a.Path != path {
				t.Fatalf("client %v, error %v", c, err)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
			if want := "the NVTX tool " + path + " is not attached: " + test.want; !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q", err, want)
			}
		})
	}
}

// A tool that never comes back is told from one that is not attached: it is at work.
func TestHangingTool(t *testing.T) {
	path, _ := compile(t, "HANG")
	c, err := open(path, "trbench", 10*time.Millisecond)
	var a *AttachError
	if c != nil || !errors.Is(err, ErrHangs) || !errors.As(err, &a) || err.Error() != "the NVTX tool "+path+" is not attached: it did not start within 10ms" {
		t.Errorf("client %v, error %v", c, err)
	}
}

func TestNoTool(t *testing.T) {
	c, err := Open("", "trbench")
	if c != nil || err != nil {
		t.Fatalf("client %v, error %v", c, err)
	}
	if c.Tool() != "" || c.Deaf() || c.Range("x", Look{}) != nil || c.Start("x", Look{}) != (Span{}) {
		t.Error("something was made of nothing")
	}
	everything(c)
}

// Pushing and popping allocates nothing, with and without a tool.
func TestNoAllocation(t *testing.T) {
	silent, _ := attach(t, "SILENT")
	deaf, _ := attach(t, "NOTHING")
	for _, test := range []struct {
		name string
		c    *Client
	}{{"no tool", nil}, {"a tool", silent}, {"a tool without functions", deaf}} {
		step, deep := test.c.Range("step", Look{Category: "step"}), test.c.Range("DEEP", Look{})
		if (step == nil) != (test.c != silent) {
			t.Errorf("%s: range %v", test.name, step)
		}
		n := int64(0)
		if got := testing.AllocsPerRun(1000, func() {
			n++
			step.PushInt(n)
			deep.Push()
			deep.Pop()
			step.Pop()
		}); got != 0 {
			t.Errorf("%s: %v allocations", test.name, got)
		}
	}
}

// A name with a NUL in it ends there; long names take memory of their own.
func TestNames(t *testing.T) {
	var m memory
	for _, s := range []string{"", "a", strings.Repeat("x", 3*memoryChunk), "cut\x00here"} {
		p, err := m.text(s)
		if err != nil {
			t.Fatal(err)
		}
		want := append([]byte(s), 0)
		if got := at(p, len(want)); !bytes.Equal(got, want) {
			t.Errorf("%.20q is kept as %.20q", s, got)
		}
	}
}

func BenchmarkPushPop(b *testing.B) {
	silent, _ := attach(b, "SILENT")
	for _, test := range []struct {
		name string
		c    *Client
	}{{"no tool", nil}, {"tool", silent}} {
		b.Run(test.name, func(b *testing.B) {
			r := test.c.Range("step", Look{})
			b.ReportAllocs()
			for b.Loop() {
				r.Push()
				r.Pop()
			}
		})
	}
}
