package results

import (
	"reflect"
	"strings"
	"testing"
)

func TestRowKeyString(t *testing.T) {
	cell := DefaultCellKey()
	cell.Workload, cell.Batch = "resnet20-cifar", 4
	conf := DefaultConfigurationKey()
	conf.Launcher = "go"
	k := RowKey{cell, conf, StepTimeNs}
	cases := []struct {
		name string
		set  func(*RowKey)
		want string
	}{
		{"on a CPU", func(*RowKey) {}, "resnet20-cifar/batch=4/gpus=1/eager/event/device/step_time_ns"},
		{"on a GPU", func(k *RowKey) {
			k.Cell.Device, k.Cell.Kernels, k.Cell.Precision = "cuda", "cudnn", "amp"
			k.Configuration = ConfigurationKey{"step", "inside", "device", "purego", "threads", 0}
		}, "resnet20-cifar/batch=4/gpus=1/precision=amp/device=cuda/kernels=cudnn/step/inside/device/step_time_ns"},
		{"as a run writes it", func(k *RowKey) {
			k.Cell.Resolution, k.Cell.LastBatch = Resolution{32, 32}, LastBatch{4, 4}
		}, "resnet20-cifar/batch=4/gpus=1/resolution=32/eager/event/device/step_time_ns"},
		{"two resolutions and a short last batch", func(k *RowKey) {
			k.Cell.Resolution, k.Cell.LastBatch = Resolution{24, 32}, LastBatch{3, 4}
		}, "resnet20-cifar/batch=4/gpus=1/resolution=24,32/last_batch=3,4/eager/event/device/step_time_ns"},
		{"a name with a separator", func(k *RowKey) { k.Cell.Workload = "a/b c" }, "a%2Fb%20c/batch=4/gpus=1/eager/event/device/step_time_ns"},
	}
	for _, c := range cases {
		row := k
		c.set(&row)
		if got := row.String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Every field of the key is in the name: changing any changes it.
func TestRowKeyStringHasEveryField(t *testing.T) {
	plain := RowKey{DefaultCellKey(), DefaultConfigurationKey(), StepTimeNs}
	seen := map[string]string{plain.String(): "none"}
	var walk func(v reflect.Value, name string, k *RowKey)
	walk = func(v reflect.Value, name string, k *RowKey) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				walk(v.Field(i), name+"."+v.Type().Field(i).Name, k)
			}
			return
		}
		old := reflect.ValueOf(v.Interface())
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Float64:
			v.SetFloat(v.Float() + .1)
		default:
			v.SetInt(v.Int() + 1)
		}
		text := k.String()
		if other, ok := seen[text]; ok || strings.ContainsAny(text, " \t\n") {
			t.Errorf("%s is named like %s: %s", name, other, text)
		}
		seen[text] = name
		v.Set(old)
	}
	k := plain
	walk(reflect.ValueOf(&k).Elem(), "row", &k)
	if len(seen) < 20 {
		t.Errorf("only %d names", len(seen))
	}
}
