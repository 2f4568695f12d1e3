package cupti_test

import "syscall"

func gettid() int { return syscall.Gettid() }
