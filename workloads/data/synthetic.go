package data

import (
	"encoding/binary"
	"math"
)

// mix is the finaliser of SplitMix64: a bijection that scatters bits well, so
// a counter becomes a random-access generator without state.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const golden = 0x9e3779b97f4a7c15

// stream is a counter-based generator.
type stream struct{ state uint64 }

func (s *stream) next() uint64 {
	s.state += golden
	return mix(s.state)
}

// key is the generator of image number n (over all ranks) of a split.
func key(seed uint64, split Split, n uint64) stream {
	return stream{mix(mix(seed+golden) ^ uint64(split+1)*0xd1342543de82ef95 ^ mix(n+golden))}
}

// imageNumber numbers image i of a batch so that no two ranks share one.
func imageNumber(rank, ranks, index, batch, i int) uint64 {
	return (uint64(index)*uint64(ranks)+uint64(rank))*uint64(batch) + uint64(i)
}

// random cuts each image out of one pool of noise at a place of its own, so
// that filling a batch costs a copy, as it does a loader whose workers decode
// elsewhere, and not the making of noise.
type random struct {
	seed    uint64
	classes int
	pool    []byte
}

// poolBytes is the size of the noise. An image larger than that repeats it.
const poolBytes = 4 << 20

// NewRandom returns uniform bytes as images and uniform labels below classes.
// Two images may share bytes, at different places.
func NewRandom(seed uint64, classes int) Source {
	r := random{seed, max(classes, 1), make([]byte, poolBytes)}
	g := stream{mix(seed ^ 0x6e6f697365)}
	for at := 0; at < poolBytes; at += 8 {
		binary.LittleEndian.PutUint64(r.pool[at:], g.next())
	}
	return r
}

func (r random) Name() string                      { return Random }
func (r random) Classes() int                      { return r.classes }
func (r random) StepsPerEpoch(Split, int, int) int { return 0 }

func (r random) Fill(split Split, rank, ranks, index, batch, resolution int, images, labels []byte) {
	size := resolution * resolution * 3
	for i := range batch {
		g := key(r.seed, split, imageNumber(rank, ranks, index, batch, i))
		putLabel(labels, i, int(g.next()%uint64(r.classes)))
		at := int(g.next() % poolBytes)
		for image := images[i*size : (i+1)*size]; len(image) > 0; at = 0 {
			image = image[copyPast(image, r.pool[at:]):]
		}
	}
}

func putLabel(labels []byte, i, label int) {
	binary.LittleEndian.PutUint32(labels[4*i:], uint32(label))
}

// learnable draws each image as its class's pattern plus noise. A pattern is
// two plane waves of low frequency in each channel, in units of the image
// side, so that it is the same picture at every resolution.
type learnable struct {
	seed    uint64
	classes int
	waves   []wave // 3 channels x 2 waves a class
}

type wave struct{ fx, fy, phase float64 }

const (
	wavesPerChannel = 2
	waveAmplitude   = 32 // of each wave, in U8 steps
	noiseRange      = 64 // uniform noise is in [-noiseRange/2, noiseRange/2)
)

// NewLearnable returns classes that a small network tells apart within a few
// dozen steps. The patterns depend on the seed, the images on seed and split.
func NewLearnable(seed uint64, classes int) Source {
	classes = max(classes, 1)
	l := learnable{seed: seed, classes: classes, waves: make([]wave, classes*3*wavesPerChannel)}
	g := stream{mix(seed ^ 0x7061747465726e73)}
	unit := func() float64 { return float64(g.next()>>11) / (1 << 53) }
	for i := range l.waves {
		angle := 2 * math.Pi * unit()
		cycles := 1 + 2*unit() // a picture
		l.waves[i] = wave{cycles * math.Cos(angle), cycles * math.Sin(angle), 2 * math.Pi * unit()}
	}
	return l
}

func (l learnable) Name() string                      { return Learnable }
func (l learnable) Classes() int                      { return l.classes }
func (l learnable) StepsPerEpoch(Split, int, int) int { return 0 }

func (l learnable) Fill(split Split, rank, ranks, index, batch, resolution int, images, labels []byte) {
	size := resolution * resolution * 3
	for i := range batch {
		g := key(l.seed, split, imageNumber(rank, ranks, index, batch, i))
		class := int(g.next() % uint64(l.classes))
		putLabel(labels, i, class)
		l.draw(&g, class, resolution, images[i*size:(i+1)*size])
	}
}

// draw renders one image of a class.
func (l learnable) draw(g *stream, class, resolution int, image []byte) {
	waves := l.waves[class*3*wavesPerChannel:][:3*wavesPerChannel]
	for c := range 3 {
		var plane [wavesPerChannel]rotor
		for y := range resolution {
			fy := (float64(y) + 0.5) / float64(resolution)
			for k := range plane {
				plane[k] = newRotor(waves[c*wavesPerChannel+k], fy, resolution)
			}
			for x := range resolution {
				v := 128.0
				for k := range plane {
					v += waveAmplitude * plane[k].next()
				}
				noise := float64(g.next()>>58) - noiseRange/2 // 6 bits
				image[(y*resolution+x)*3+c] = byte(min(max(v+noise, 0), 255))
			}
		}
	}
}

// rotor steps along a row of a wave by rotation: two sine calls a row instead
// of one a pixel.
type rotor struct{ s, c, ds, dc float64 }

func newRotor(w wave, fy float64, resolution int) rotor {
	step := 2 * math.Pi * w.fx / float64(resolution)
	start := 2*math.Pi*w.fy*fy + w.phase + step/2
	var r rotor
	r.s, r.c = math.Sincos(start)
	r.ds, r.dc = math.Sincos(step)
	return r
}

func (r *rotor) next() float64 {
	v := r.s
	r.s, r.c = r.s*r.dc+r.c*r.ds, r.c*r.dc-r.s*r.ds
	return v
}
