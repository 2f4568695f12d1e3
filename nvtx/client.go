package nvtx

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/ebitengine/purego"

	"github.com/tech-renaissance/trbench/internal/dl"
)

// PathVariable is the environment variable that names the tool.
const PathVariable = "NVTX_INJECTION64_PATH"

// initialise is the function of a tool that takes the export tables.
const initialise = "InitializeInjectionNvtx2"

// AttachError says why a tool that was named is not attached.
type AttachError struct {
	Path   string
	Reason string
	// Err is the cause, where there is one; Reason tells it.
	Err error
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("the NVTX tool %s is not attached: %s", e.Path, e.Reason)
}

func (e *AttachError) Unwrap() error { return e.Err }

// call is a function of a tool as it is called: with the domain in front, or
// the older one without.
type call struct {
	slot   *slot
	domain bool
}

// Client is an attached tool, with a domain of its own in it. Nil is no tool:
// everything made from it is nil, and calls on that do nothing. Its methods
// may be called on any thread.
type Client struct {
	path   string
	tables *tables
	domain uintptr
	// What ranges are made of; empty where the tool has no such function.
	push, pop, start, end, mark call
	// registered says that names are handles which the tool gave out.
	registered bool

	mu         sync.Mutex
	names      map[string]uintptr // handles or C strings
	categories map[string]uint32
}

// Open attaches the tool at a path, which is the value of [PathVariable], and
// makes a domain in it. An empty path is no tool: nil, and no error. The tool
// stays loaded for the life of the process. The error is an [*AttachError]. One
// that does not come back within a minute is [ErrHangs]: it is at work still, on a
// thread of its own.
func Open(path, domain string) (*Client, error) { return open(path, domain, time.Minute) }

func open(path, domain string, patience time.Duration) (*Client, error) {
	if path == "" {
		return nil, nil
	}
	type started struct {
		client *Client
		err    error
	}
	done := make(chan started, 1)
	go func() {
		c, err := start(path)
		done <- started{c, err}
	}()
	select {
	case s := <-done:
		if s.err != nil {
			return nil, s.err
		}
		if err := s.client.choose(domain); err != nil {
			return nil, &AttachError{Path: path, Reason: err.Error(), Err: err}
		}
		return s.client, nil
	case <-time.After(patience):
		return nil, &AttachError{Path: path, Reason: fmt.Sprintf("it did not start within %v", patience), Err: ErrHangs}
	}
}

// ErrHangs is the cause of an [*AttachError] where the tool never came back.
var ErrHangs = errors.New("the tool hangs")

// start loads a tool and lets it take the tables, however long it takes.
func start(path string) (*Client, error) {
	refuse := func(err error, reason string, args ...any) (*Client, error) {
		return nil, &AttachError{Path: path, Reason: fmt.Sprintf(reason, args...), Err: err}
	}
	lib, err := dl.Open(dl.Query{Name: "it", Path: path})
	if err != nil {
		return refuse(err, "%v", err)
	}
	f, err := lib.Lookup(initialise)
	if err != nil {
		_ = lib.Close() // that it is no tool is the news
		return refuse(err, "it has no function %s", initialise)
	}
	t, err := newTables()
	if err != nil {
		return refuse(err, "%v", err)
	}
	if r, _, _ := purego.SyscallN(f, t.export); int32(r) != 1 {
		// It stays loaded: it has the tables, and may have started threads.
		return refuse(nil, "its %s returned %d, not 1", initialise, int32(r))
	}
	return &Client{path: path, tables: t, names: map[string]uintptr{}, categories: map[string]uint32{}}, nil
}

// choose makes the domain and decides which functions ranges are made with.
// What belongs together comes from one module: a push in a domain is not
// undone by a pop outside.
func (c *Client) choose(domain string) error {
	core, core2 := c.tables.slots[moduleCore], c.tables.slots[moduleCore2]
	if f := core2[core2DomainCreateA].addr(); f != 0 {
		name, err := c.tables.mem.text(domain)
		if err != nil {
			return err
		}
		c.domain, _, _ = purego.SyscallN(f, name)
	}
	pick := func(in, without []int) []call {
		for _, m := range []struct {
			slots  []slot
			ids    []int
			domain bool
		}{{core2, in, true}, {core, without, false}} {
			out := make([]call, len(m.ids))
			whole := !m.domain || c.domain != 0
			for i, id := range m.ids {
				out[i] = call{&m.slots[id], m.domain}
				whole = whole && m.slots[id].addr() != 0
			}
			if whole {
				return out
			}
		}
		return make([]call, len(in))
	}
	p := pick([]int{core2DomainRangePushEx, core2DomainRangePop}, []int{coreRangePushEx, coreRangePop})
	s := pick([]int{core2DomainRangeStartEx, core2DomainRangeEnd}, []int{coreRangeStartEx, coreRangeEnd})
	m := pick([]int{core2DomainMarkEx}, []int{coreMarkEx})
	c.push, c.pop, c.start, c.end, c.mark = p[0], p[1], s[0], s[1], m[0]
	// A handle is good in its domain alone.
	c.registered = c.domain != 0 && core2[core2RegisterStringA].addr() != 0
	for _, k := range []call{c.push, c.start, c.mark} {
		c.registered = c.registered && (k.slot == nil || k.domain)
	}
	return nil
}

// Tool is the path of the attached tool, empty without one.
func (c *Client) Tool() string {
	if c == nil {
		return ""
	}
	return c.path
}

// Deaf says that a tool is attached which takes no ranges.
func (c *Client) Deaf() bool {
	return c != nil && c.push.slot == nil && c.start.slot == nil && c.mark.slot == nil
}

// Close ends the domain. The tool, and the memory that names lie in, stay:
// it reads them when it writes what it saw.
func (c *Client) Close() {
	if c == nil || c.domain == 0 {
		return
	}
	if f := c.tables.slots[moduleCore2][core2DomainDestroy].addr(); f != 0 {
		purego.SyscallN(f, c.domain)
	}
}

// message registers a name, once, and returns it as an attribute has it. Without
// memory for it, it is empty.
func (c *Client) message(name string) (kind int32, value uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, known := c.names[name]
	if !known {
		text, err := c.tables.mem.text(name)
		if err != nil {
			return messageNone, 0
		}
		value = text
		if c.registered {
			f := c.tables.slots[moduleCore2][core2RegisterStringA].addr()
			value, _, _ = purego.SyscallN(f, c.domain, text)
			if value == 0 { // a tool may register nothing: the text then serves
				c.registered = false
				value = text
				clear(c.names) // whoever holds a handle keeps it
			}
		}
		c.names[name] = value
	}
	if c.registered {
		return messageRegistered, value
	}
	return messageText, value
}

// category names a category, once, and returns its number; 0 is none.
func (c *Client) category(name string) uint32 {
	if name == "" {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := c.categories[name]; id != 0 {
		return id
	}
	id := uint32(len(c.categories) + 1)
	c.categories[name] = id
	text, err := c.tables.mem.text(name)
	if err != nil {
		return id // a category without a name
	}
	in, out := false, false
	for _, k := range []call{c.push, c.start, c.mark} {
		in, out = in || k.slot != nil && k.domain, out || k.slot != nil && !k.domain
	}
	if f := c.tables.slots[moduleCore2][core2DomainNameCategory].addr(); in && f != 0 {
		purego.SyscallN(f, c.domain, uintptr(id), text)
	}
	if f := c.tables.slots[moduleCore][coreNameCategoryA].addr(); out && f != 0 {
		purego.SyscallN(f, uintptr(id), text)
	}
	return id
}

// NameThread names the calling OS thread; the caller has locked it. Source:
// nvtxNameOsThreadA.
func (c *Client) NameThread(name string) {
	c.name(moduleCore, coreNameOsThreadA, uintptr(syscall.Gettid()), name)
}

// NameCuDevice names a device by its driver handle. Source: nvtxNameCuDeviceA.
func (c *Client) NameCuDevice(device int32, name string) {
	c.name(moduleCUDA, cudaNameCuDeviceA, uintptr(uint32(device)), name)
}

// NameCuStream names a stream by its driver handle. Source: nvtxNameCuStreamA.
func (c *Client) NameCuStream(stream uintptr, name string) {
	c.name(moduleCUDA, cudaNameCuStreamA, stream, name)
}

func (c *Client) name(module, id int, object uintptr, name string) {
	if c == nil {
		return
	}
	f := c.tables.slots[module][id].addr()
	if f == 0 {
		return
	}
	if text, err := c.tables.mem.text(name); err == nil {
		purego.SyscallN(f, object, text)
	}
}
