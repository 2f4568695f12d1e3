//go:build gorgonia

package gorgonia

// The library calls cuInit as the program starts and ends the process if that
// fails, whatever the command. The linker puts the function below in its place:
// it calls the driver's, so that a GPU is initialised as the library expects, and
// hides a failure, which package driver finds again and explains. No other call
// is made before a device is opened.

/*
#cgo LDFLAGS: -Wl,--wrap=cuInit

unsigned int __real_cuInit(unsigned int flags);

unsigned int __wrap_cuInit(unsigned int flags) {
	(void)__real_cuInit(flags);
	return 0;
}
*/
import "C"
