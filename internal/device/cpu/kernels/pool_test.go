package kernels

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestPoolRunsEachChunkOnce(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 3, 8} {
		p := newPool(t, workers)
		for _, n := range []int{0, 1, 2, 7, 100} {
			count := make([]atomic.Int32, n)
			p.Run(n, func(i int) { count[i].Add(1) })
			for i := range count {
				if c := count[i].Load(); c != 1 {
					t.Fatalf("%d workers: chunk %d of %d ran %d times", workers, i, n, c)
				}
			}
		}
	}
}

func TestPoolConcurrentAndNested(t *testing.T) {
	p := newPool(t, 3)
	var total atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				p.Run(4, func(int) { p.Run(3, func(int) { total.Add(1) }) })
			}
		})
	}
	wg.Wait()
	if got := total.Load(); got != 8*200*12 {
		t.Fatalf("%d inner chunks ran, want %d", got, 8*200*12)
	}
}

func TestPoolPanic(t *testing.T) {
	for _, workers := range []int{1, 3} {
		p := newPool(t, workers)
		want := errors.New("chunk 5")
		for range 50 {
			func() {
				defer func() {
					if got := recover(); got != want {
						t.Fatalf("recovered %v, want %v", got, want)
					}
				}()
				p.Run(9, func(i int) {
					if i == 5 {
						panic(want)
					}
				})
			}()
		}
		ran := false
		p.Run(1, func(int) { ran = true })
		if !ran {
			t.Fatal("the pool is of no use after a panic")
		}
	}
}

func TestPoolCloseTwice(t *testing.T) {
	p := NewPool(4)
	p.Close()
	p.Close()
}
