package read

// event is one trace event: the members that matter, as they stand in the file.
type event struct {
	ph, cat, name, pid, tid, ts, dur value
	args                             arguments
}

// arguments are the members of args that matter.
type arguments struct {
	device, stream, correlation, bytes, graph, node, kind value
	class, domain                                         value // timeline/write's
	name, labels                                          value // of metadata
	first                                                 value // the first number: a counter's
}

// parse reads one event that begins at b[i] into s.event. next is behind it.
func (s *scanner) parse(b []byte, i int) (next int, st status) {
	s.event = event{}
	s.odd = false
	e := &s.event
	return s.members(b, i, func(key value, i int) (int, status) {
		var to *value
		switch string(key.raw) {
		case "ph":
			to = &e.ph
		case "cat":
			to = &e.cat
		case "name":
			to = &e.name
		case "pid":
			to = &e.pid
		case "tid":
			to = &e.tid
		case "ts":
			to = &e.ts
		case "dur":
			to = &e.dur
		case "args":
			if i < len(b) && b[i] == '{' && s.wantsArgs() {
				return s.members(b, i, s.argument(b))
			}
		}
		v, next, st := s.value(b, i, inObject)
		if st == good && to != nil {
			*to = v
		}
		return next, st
	})
}

// wantsArgs is false where it is known already that the arguments do not matter:
// those of operators and of Python frames are most of a file.
func (s *scanner) wantsArgs() bool {
	switch string(s.event.cat.raw) {
	case "cpu_op", "python_function", "cpu_instant_event", "Operator", "ac2g":
		return false
	}
	return true
}

func (s *scanner) argument(b []byte) func(key value, i int) (int, status) {
	a := &s.event.args
	return func(key value, i int) (int, status) {
		var to *value
		switch string(key.raw) {
		case "device":
			to = &a.device
		case "stream":
			to = &a.stream
		case "correlation":
			to = &a.correlation
		case "bytes":
			to = &a.bytes
		case "graph id":
			to = &a.graph
		case "graph node id":
			to = &a.node
		case "kind":
			to = &a.kind
		case "class":
			to = &a.class
		case "domain":
			to = &a.domain
		case "name":
			to = &a.name
		case "labels":
			to = &a.labels
		}
		v, next, st := s.value(b, i, inObject)
		if st == good {
			if to != nil {
				*to = v
			}
			if a.first.kind == absent && v.kind == number {
				a.first = v
			}
		}
		return next, st
	}
}
