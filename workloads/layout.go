package workloads

import "fmt"

// paramAlign is the alignment of a parameter inside the parameter ranges, in
// elements: 512 bytes of F32 and 256 of F16, so that one element offset names
// a parameter in every range.
const paramAlign = 128

// param is one trainable tensor of the model.
type param struct {
	name    string
	shape   Shape
	off     int // elements from the start of the ranges
	half    bool
	decayed bool
	stem    bool
	norm    string // the batch norm it belongs to, if any
}

func (p param) span() Span { return Span{p.off, p.shape.Elems()} }

// params lays the parameters out in the order docs/design.md draws: deep
// convolutions, fully connected weight | deep norms and bias, stem norm | stem
// convolution. The marks are element offsets.
type params struct {
	list                              []param
	fcWeight, plain, stem, stemWeight int // where each part begins
	total                             int
}

func (p *params) find(name string) param {
	for _, q := range p.list {
		if q.name == name {
			return q
		}
	}
	panic("workloads: no parameter " + name)
}

func layoutParams(m model, norms bool) *params {
	p := &params{}
	add := func(q param) {
		q.off = p.total
		p.list = append(p.list, q)
		p.total += (q.shape.Elems() + paramAlign - 1) / paramAlign * paramAlign
	}
	convs := m.convs()
	addNorm := func(c convShape) {
		if !norms {
			return
		}
		add(param{name: c.norm + ".gamma", shape: Shape{c.out}, stem: c.stem, norm: c.norm})
		add(param{name: c.norm + ".beta", shape: Shape{c.out}, stem: c.stem, norm: c.norm})
	}
	weight := func(c convShape) param {
		return param{name: c.name + ".weight", shape: Shape{c.out, c.kernel, c.kernel, c.in}, half: true, decayed: true, stem: c.stem}
	}
	last := m.blocks[len(m.blocks)-1].out
	for _, c := range convs[1:] {
		add(weight(c))
	}
	p.fcWeight = p.total
	add(param{name: "fc.weight", shape: Shape{m.classes, last}, half: true, decayed: true})
	p.plain = p.total
	for _, c := range convs[1:] {
		addNorm(c)
	}
	add(param{name: "fc.bias", shape: Shape{m.classes}})
	p.stem = p.total
	addNorm(convs[0])
	p.stemWeight = p.total
	add(weight(convs[0]))
	return p
}

// convShape is a convolution followed by a batch norm.
type convShape struct {
	name, norm                   string
	in, out, kernel, stride, pad int
	stem                         bool
}

// convs lists the model's convolutions, the stem's first.
func (m model) convs() []convShape {
	out := []convShape{{"stem.conv", "stem.bn", 3, m.stem.channels, m.stem.kernel, m.stem.stride, m.stem.pad, true}}
	for _, b := range m.blocks {
		out = append(out, b.main()...)
		if b.projected() {
			out = append(out, b.shortcut())
		}
	}
	return out
}

// main lists the convolutions on a block's main path.
func (b blockShape) main() []convShape {
	c := func(i, in, out, kernel, stride int) convShape {
		return convShape{fmt.Sprintf("%s.conv%d", b.name, i), fmt.Sprintf("%s.bn%d", b.name, i), in, out, kernel, stride, kernel / 2, false}
	}
	if b.bottleneck {
		return []convShape{c(1, b.in, b.mid, 1, 1), c(2, b.mid, b.mid, 3, b.step), c(3, b.mid, b.out, 1, 1)}
	}
	return []convShape{c(1, b.in, b.mid, 3, b.step), c(2, b.mid, b.out, 3, 1)}
}

func (b blockShape) shortcut() convShape {
	return convShape{b.name + ".down.conv", b.name + ".down.bn", b.in, b.out, 1, b.step, 0, false}
}

// normLayout gives every batch norm a pair of vectors in a range of its own:
// first, second (mean and variance, or scale and bias).
type normLayout struct {
	names []string
	c     map[string]int
	off   map[string]int // of the first vector; the second follows at align(c)
	total int
}

func layoutNorms(m model) *normLayout {
	l := &normLayout{c: map[string]int{}, off: map[string]int{}}
	for _, c := range m.convs() {
		l.names = append(l.names, c.norm)
		l.c[c.norm], l.off[c.norm] = c.out, l.total
		l.total += 2 * l.pitch(c.norm)
	}
	return l
}

// pitch is the distance of a norm's two vectors, in elements.
func (l *normLayout) pitch(norm string) int {
	return (l.c[norm] + paramAlign - 1) / paramAlign * paramAlign
}
