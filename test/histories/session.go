package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
)

// session is a client's connection to the referee.
type session struct {
	in      *json.Decoder
	out     *json.Encoder
	client  int
	time    int64
	stop    bool
	ops     int     // called so far
	returns []Event // that the next exchange sends
}

func newSession(ctx context.Context, address string) (*session, net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the referee: %w", err)
	}
	s := &session{in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
	if err := s.out.Encode(request{Role: "client"}); err != nil {
		return nil, nil, fmt.Errorf("greeting the referee: %w", err)
	}
	return s, conn, s.receive()
}

func (s *session) receive() error {
	var answer reply
	if err := s.in.Decode(&answer); err != nil {
		return fmt.Errorf("reading from the referee: %w", err)
	}
	if answer.Client != 0 {
		s.client = answer.Client
	}
	s.time, s.stop = answer.Time, answer.Stop
	return nil
}

// begin has the referee stamp a call, before the operation begins.
func (s *session) begin(kind Kind, file string, value int64) (op int, err error) {
	s.ops++
	call := Event{Phase: called, Op: s.ops, Kind: kind, File: file, Value: value}
	return s.ops, s.exchange(append(s.returns, call))
}

// end notes the return of an operation. The next exchange sends it, so its stamp is later than the return.
func (s *session) end(op int, value int64, result string) {
	s.returns = append(s.returns, Event{Phase: returned, Op: op, Value: value, Result: result})
}

func (s *session) exchange(events []Event) error {
	s.returns = nil
	if err := s.out.Encode(request{Events: events}); err != nil {
		return fmt.Errorf("writing to the referee: %w", err)
	}
	return s.receive()
}

// do records an operation, which returns what it read and its result.
func (s *session) do(kind Kind, file string, value int64, operation func() (int64, string)) (result string, err error) {
	op, err := s.begin(kind, file, value)
	if err != nil {
		return "", err
	}
	got, result := operation()
	s.end(op, got, result)
	return result, nil
}
