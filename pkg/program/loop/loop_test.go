package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

func TestPauseLastsAsLongAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !loop.Pause(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("it ended after %s", time.Since(began))
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if loop.Pause(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("it lasted %s", time.Since(began))
		}
	})
}

func TestLastErrorTellsBeginChangeAndEnd(t *testing.T) {
	var last loop.LastError
	for i, step := range []struct {
		err          error
		isNew, ended bool
	}{
		{nil, false, false},
		{errors.New("one"), true, false},
		{errors.New("one"), false, false},
		{errors.New("two"), true, false},
		{nil, false, true},
		{nil, false, false},
	} {
		if isNew, ended := last.Update(step.err); isNew != step.isNew || ended != step.ended {
			t.Errorf("step %d: new is %t, ended is %t", i, isNew, ended)
		}
	}
}
