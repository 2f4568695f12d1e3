package cudnn

import (
	"fmt"
	"strconv"
)

// Status is a cudnnStatus_t. It is an error value to be matched; the thousands
// stand for a family, and a family's first code matches all of it:
//
//	errors.Is(err, cudnn.NotSupported)
type Status int32

const (
	Success          Status = 0
	NotInitialized   Status = 1001
	SublibraryFailed Status = 1008
	BadParam         Status = 2000
	NotFinalized     Status = 2004
	NotSupported     Status = 3000
	Internal         Status = 4000
	ExecutionFailed  Status = 5000
)

func (s Status) Error() string { return "cuDNN status " + strconv.Itoa(int(s)) }

// Is matches the same code, and any code of the family that a multiple of a
// thousand stands for.
func (s Status) Is(target error) bool {
	t, ok := target.(Status)
	return ok && (s == t || t != Success && t%1000 == 0 && s/1000 == t/1000)
}

// Error is a cuDNN call that failed.
type Error struct {
	// Call is the function, and for attributes the attribute: "cudnnBackendSetAttribute(901)".
	Call string
	Code Status
	// Name is the code's name, as cudnnGetErrorString gives it.
	Name string
	// Detail is cudnnGetLastErrorString's sentence, often empty.
	Detail string
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, int(e.Code))
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the code.
func (e *Error) Unwrap() error { return e.Code }

// Unavailable says why cuDNN cannot be used and what would help.
type Unavailable struct {
	// Reason is one sentence.
	Reason string
	// Library is the file that was opened, if one was.
	Library string
	// Cause is the loader's error, if any.
	Cause error
}

func (u *Unavailable) Error() string {
	if u.Cause != nil {
		return u.Reason + ": " + u.Cause.Error()
	}
	return u.Reason
}

func (u *Unavailable) Unwrap() error { return u.Cause }

func name(names []string, i int, other string) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return other + strconv.Itoa(i)
}
