package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Extra holds the fields of an object that this version does not know. They
// are written back, after the known ones and in the order of their names.
type Extra map[string]json.RawMessage

// decodeKnown fills the fields of the struct that dst points to from an
// object, by exact name (encoding/json would also take "Cells" for "cells"),
// and returns the members that are no field. null leaves a field as it is.
func decodeKnown(b []byte, dst any) (Extra, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	v := reflect.ValueOf(dst).Elem()
	for i := range v.NumField() {
		name := fieldName(v.Type().Field(i))
		raw, ok := members[name]
		if !ok || name == "-" {
			continue
		}
		delete(members, name)
		if string(raw) == "null" {
			continue
		}
		if err := json.Unmarshal(raw, v.Field(i).Addr().Interface()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	return members, nil
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// encodeWith is the object of plain, a struct without methods, followed by
// extra.
func encodeWith(plain any, extra Extra) ([]byte, error) {
	b, err := json.Marshal(plain)
	if err != nil || len(extra) == 0 {
		return b, err
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(b, []byte("}")))
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, ",%s:%s", quoted, extra[name])
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// notNil makes lists appear as [] rather than null.
func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// UnmarshalJSON keeps unknown fields in Extra.
func (r *Record) UnmarshalJSON(b []byte) (err error) {
	*r = Record{Status: Complete}
	r.Extra, err = decodeKnown(b, r)
	return err
}

// MarshalJSON writes Extra back.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	r.Arguments, r.Cells, r.Warnings = notNil(r.Arguments), notNil(r.Cells), notNil(r.Warnings)
	r.Plan = r.Plan.withLists()
	e := &r.Environment
	e.Fields, e.Readings, e.Calibration = notNil(e.Fields), notNil(e.Readings), notNil(e.Calibration)
	e.Moments = slices.Clone(notNil(e.Moments)) // the caller's stay as they are
	for i := range e.Moments {
		e.Moments[i].Readings = notNil(e.Moments[i].Readings)
	}
	return encodeWith(plain(r), r.Extra)
}

// UnmarshalJSON keeps unknown fields in Extra.
func (c *Cell) UnmarshalJSON(b []byte) (err error) {
	*c = Cell{Key: DefaultCellKey(), Status: Done}
	c.Extra, err = decodeKnown(b, c)
	return err
}

// MarshalJSON writes Extra back.
func (c Cell) MarshalJSON() ([]byte, error) {
	type plain Cell
	c.Variants, c.Warnings = notNil(c.Variants), notNil(c.Warnings)
	c.Configurations, c.Verify.Modes = notNil(c.Configurations), notNil(c.Verify.Modes)
	c.Processes, c.Ratios, c.Plans = notNil(c.Processes), notNil(c.Ratios), notNil(c.Plans)
	return encodeWith(plain(c), c.Extra)
}

// UnmarshalJSON keeps unknown fields in Extra.
func (c *Configuration) UnmarshalJSON(b []byte) (err error) {
	*c = Configuration{Key: DefaultConfigurationKey()}
	c.Extra, err = decodeKnown(b, c)
	return err
}

// MarshalJSON writes Extra back.
func (c Configuration) MarshalJSON() ([]byte, error) {
	type plain Configuration
	c.Metrics, c.Prepare, c.Warmup = notNil(c.Metrics), notNil(c.Prepare), notNil(c.Warmup)
	c.Absent, c.Trace = notNil(c.Absent), c.Trace.withLists()
	c.Machine = slices.Clone(notNil(c.Machine)) // the caller's stay as they are
	for i := range c.Machine {
		c.Machine[i].Processes = notNil(c.Machine[i].Processes)
	}
	return encodeWith(plain(c), c.Extra)
}
