package device

import "time"

// Timer is a [Rank] whose device keeps time itself. Its methods are called on
// the rank's thread, outside captures.
type Timer interface {
	// MarkBegin and MarkEnd record an event before and after what is submitted
	// between them, on all streams; they do not wait. Between is the device's
	// time from one to the other, asked after a Sync of all streams.
	MarkBegin() error
	MarkEnd() error
	Between() (time.Duration, error)
	// Hold makes work submitted later, on any stream, wait until Release. A
	// hold that lasts too long opens by itself, and Release says so: the device
	// then ran while the host was still submitting.
	Hold() error
	Release() (expired bool, err error)
}
