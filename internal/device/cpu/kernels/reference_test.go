package kernels

import (
	"math"

	"github.com/tech-renaissance/trbench/workloads"
)

// The references are plain loops in float64, written from the operators'
// definitions and not from the kernels.

func refConv(x, w []float64, g geom) []float64 {
	y := make([]float64, g.outPixels()*g.k)
	for n := range g.n {
		for i := range g.oh {
			for j := range g.ow {
				for k := range g.k {
					var sum float64
					for r := range g.r {
						for s := range g.s {
							h, v := i*g.stride-g.pad+r, j*g.stride-g.pad+s
							if h < 0 || h >= g.h || v < 0 || v >= g.w {
								continue
							}
							for c := range g.c {
								sum += x[((n*g.h+h)*g.w+v)*g.c+c] * w[((k*g.r+r)*g.s+s)*g.c+c]
							}
						}
					}
					y[((n*g.oh+i)*g.ow+j)*g.k+k] = sum
				}
			}
		}
	}
	return y
}

// refConvGrads are the gradients of dot(conv(x, w), dy), for sizes at which
// central differences would take too long.
func refConvGrads(x, w, dy []float64, g geom) (dx, dw []float64) {
	dx, dw = make([]float64, len(x)), make([]float64, len(w))
	for p := range g.outPixels() {
		n, i, j := p/(g.oh*g.ow), p/g.ow%g.oh, p%g.ow
		for q := range g.taps() {
			h, v := i*g.stride-g.pad+q/(g.s*g.c), j*g.stride-g.pad+q/g.c%g.s
			if h < 0 || h >= g.h || v < 0 || v >= g.w {
				continue
			}
			at := ((n*g.h+h)*g.w+v)*g.c + q%g.c
			for k := range g.k {
				d := dy[p*g.k+k]
				dx[at] += d * w[k*g.taps()+q]
				dw[k*g.taps()+q] += d * x[at]
			}
		}
	}
	return dx, dw
}

// refNorm returns y, mean, invstd, statMean, statVar.
func refNorm(x, gamma, beta, z []float64, c int, a workloads.Attr) [][]float64 {
	y := make([]float64, len(x))
	mean, invstd := make([]float64, a.Groups*c), make([]float64, a.Groups*c)
	statMean, statVar := make([]float64, c), make([]float64, c)
	size := len(x) / a.Groups
	n := float64(size / c)
	for g := range a.Groups {
		part := x[g*size : (g+1)*size]
		for ch := range c {
			var m, v float64
			for i := ch; i < size; i += c {
				m += part[i] / n
			}
			for i := ch; i < size; i += c {
				v += (part[i] - m) * (part[i] - m) / n
			}
			s := 1 / math.Sqrt(v+float64(a.Eps))
			for i := ch; i < size; i += c {
				out := gamma[ch]*(part[i]-m)*s + beta[ch]
				if a.Add {
					out += z[g*size+i]
				}
				if a.ReLU && out < 0 {
					out = 0
				}
				y[g*size+i] = out
			}
			mean[g*c+ch], invstd[g*c+ch] = m, s
			statMean[ch] += m / float64(a.Groups)
			if a.Unbiased {
				v *= n / math.Max(n-1, 1)
			}
			statVar[ch] += v / float64(a.Groups)
		}
	}
	return [][]float64{y, mean, invstd, statMean, statVar}
}

func refMaxPool(x []float64, p maxPool) (y, index []float64) {
	for n := range p.n {
		for i := range p.oh {
			for j := range p.ow {
				for c := range p.c {
					best, at := math.Inf(-1), -1
					for r := range p.r {
						for s := range p.r {
							h, w := i*p.stride-p.pad+r, j*p.stride-p.pad+s
							if h < 0 || h >= p.h || w < 0 || w >= p.w {
								continue
							}
							v := x[((n*p.h+h)*p.w+w)*p.c+c]
							if at < 0 || v > best || (math.IsNaN(v) && !math.IsNaN(best)) {
								best, at = v, r*p.r+s
							}
						}
					}
					y, index = append(y, best), append(index, float64(at))
				}
			}
		}
	}
	return y, index
}

func refAvgPool(x []float64, n, pixels, c int) []float64 {
	y := make([]float64, n*c)
	for i, v := range x {
		y[i/(pixels*c)*c+i%c] += v / float64(pixels)
	}
	return y
}

// refLoss returns the loss of each row and the hits.
func refLoss(z, labels []float64, k int, smoothing float64) (losses []float64, hits float64) {
	for i, l := range labels {
		row := z[i*k : (i+1)*k]
		var sum float64
		first := 0
		for j, v := range row {
			sum += math.Exp(v)
			if v > row[first] {
				first = j
			}
		}
		var loss float64
		for j, v := range row {
			target := smoothing / float64(k)
			if j == int(l) {
				target += 1 - smoothing
			}
			loss -= target * (v - math.Log(sum))
		}
		losses = append(losses, loss)
		if first == int(l) {
			hits++
		}
	}
	return losses, hits
}

func mean(v []float64) float64 {
	var s float64
	for _, x := range v {
		s += x
	}
	return s / float64(len(v))
}

func dot(a, b []float64) float64 {
	var s float64
	for i, v := range a {
		s += v * b[i]
	}
	return s
}

// slope is the gradient of f at p by central differences. f must not keep p.
func slope(p []float64, f func(p []float64) float64) []float64 {
	const h = 1e-5
	q := append([]float64(nil), p...)
	d := make([]float64, len(p))
	for i, v := range p {
		q[i] = v + h
		up := f(q)
		q[i] = v - h
		d[i] = (up - f(q)) / (2 * h)
		q[i] = v
	}
	return d
}
