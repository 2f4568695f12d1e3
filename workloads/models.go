package workloads

import (
	"fmt"
	"slices"
	"strings"
)

// model is a residual network: a stem, blocks, global pooling, one fully
// connected layer.
type model struct {
	name       string
	classes    int
	resolution int // default image side
	multiple   int // resolutions must be a multiple of this
	stem       stemShape
	blocks     []blockShape
	mean, std  [3]float32 // of the data set, in [0, 1]
}

type stemShape struct {
	channels, kernel, stride, pad int
	pool                          bool // 3x3 stride 2 max-pool behind it
}

type blockShape struct {
	name               string // "layer2.0"
	bottleneck         bool
	in, mid, out, step int // channels and stride
}

// projected says whether the shortcut needs a 1x1 convolution.
func (b blockShape) projected() bool { return b.step != 1 || b.in != b.out }

var (
	cifarMean    = [3]float32{.4914, .4822, .4465}
	cifarStd     = [3]float32{.2470, .2435, .2616}
	imagenetMean = [3]float32{.485, .456, .406}
	imagenetStd  = [3]float32{.229, .224, .225}
)

// models lists the networks. All shortcuts that change shape are 1x1
// projections with batch norm (the ImageNet form, also for resnet20-cifar,
// whose paper pads with zeros instead).
func models() []model {
	return []model{
		{
			name: "resnet20-cifar", classes: 10, resolution: 32, multiple: 8,
			stem: stemShape{16, 3, 1, 1, false},
			blocks: layers(false, 16, 1,
				layer{16, 3, 1}, layer{32, 3, 2}, layer{64, 3, 2}),
			mean: cifarMean, std: cifarStd,
		},
		{
			name: "resnet18-cifar", classes: 10, resolution: 32, multiple: 8,
			stem: stemShape{64, 3, 1, 1, false},
			blocks: layers(false, 64, 1,
				layer{64, 2, 1}, layer{128, 2, 2}, layer{256, 2, 2}, layer{512, 2, 2}),
			mean: cifarMean, std: cifarStd,
		},
		{
			name: "resnet50", classes: 1000, resolution: 224, multiple: 32,
			stem: stemShape{64, 7, 2, 3, true},
			blocks: layers(true, 64, 4,
				layer{64, 3, 1}, layer{128, 4, 2}, layer{256, 6, 2}, layer{512, 3, 2}),
			mean: imagenetMean, std: imagenetStd,
		},
		{
			// One block of each kind, small enough for goldens and tests.
			name: "golden-tiny", classes: 10, resolution: 16, multiple: 4,
			stem: stemShape{8, 3, 1, 1, false},
			blocks: []blockShape{
				{"layer1.0", false, 8, 8, 8, 1},
				{"layer2.0", false, 8, 16, 16, 2},
				{"layer3.0", true, 16, 8, 32, 2},
			},
			mean: cifarMean, std: cifarStd,
		},
	}
}

type layer struct{ width, blocks, stride int }

func layers(bottleneck bool, in, expansion int, ls ...layer) []blockShape {
	var out []blockShape
	for i, l := range ls {
		for k := range l.blocks {
			b := blockShape{
				name: fmt.Sprintf("layer%d.%d", i+1, k), bottleneck: bottleneck,
				in: in, mid: l.width, out: l.width * expansion, step: 1,
			}
			if k == 0 {
				b.step = l.stride
			}
			in = b.out
			out = append(out, b)
		}
	}
	return out
}

// Models lists the names a Spec's Model may have.
func Models() []string {
	var names []string
	for _, m := range models() {
		names = append(names, m.name)
	}
	return names
}

// ModelInfo is what callers outside this package may know of a model.
type ModelInfo struct {
	Classes    int
	Resolution int // default image side
	Multiple   int // resolutions must be a multiple of this
}

// Model returns a model's facts; the error lists the known names.
func Model(name string) (ModelInfo, error) {
	m, err := findModel(name)
	return ModelInfo{m.classes, m.resolution, m.multiple}, err
}

func findModel(name string) (model, error) {
	all := models()
	i := slices.IndexFunc(all, func(m model) bool { return m.name == name })
	if i < 0 {
		return model{}, fmt.Errorf("unknown workload %q; known: %s", name, strings.Join(Models(), ", "))
	}
	return all[i], nil
}
