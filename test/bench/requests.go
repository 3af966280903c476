package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// requests are what a program has asked of the apiserver, by HTTP method. client-go counts them
// itself, in every program, those of events and of the Lease, too.
type requests map[string]float64

func (r requests) reads() float64 { return r[http.MethodGet] }

func (r requests) writes() float64 {
	return r[http.MethodPost] + r[http.MethodPut] + r[http.MethodPatch] + r[http.MethodDelete]
}

func (r requests) since(before requests) requests {
	delta := maps.Clone(r)
	for method, n := range before {
		delta[method] -= n
	}
	return delta
}

const requestsMetric = "rest_client_requests_total"

// requestsOf reads them from a program's metrics.
func requestsOf(ctx context.Context, address string) (requests, error) {
	body, err := get(ctx, "http://"+address+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	r := requests{}
	for decoder := expfmt.NewDecoder(body, expfmt.NewFormat(expfmt.TypeProtoDelim)); ; {
		family := &dto.MetricFamily{}
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the metrics of %s: %w", address, err)
		}
		if family.GetName() == requestsMetric {
			r.add(family)
		}
	}
}

func (r requests) add(family *dto.MetricFamily) {
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "method" {
				r[label.GetValue()] += metric.GetCounter().GetValue()
			}
		}
	}
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return response.Body, nil
}

// Times without a write. After the longer one, all that a burst has caused is over: the trash is
// swept 10 s after a deletion.
const (
	shortQuietTime = 3 * time.Second
	quietTime      = 15 * time.Second
)

// settled waits until a program has written nothing for a while.
func settled(ctx context.Context, address string, quietTime time.Duration) (requests, error) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last, err := requestsOf(ctx, address)
	for since := time.Now(); err == nil && time.Since(since) < quietTime; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		var now requests
		if now, err = requestsOf(ctx, address); err == nil && now.writes() != last.writes() {
			last, since = now, time.Now()
		}
	}
	return last, err
}

// profile writes where a program spends its time from now on into a file of the folder; an
// empty folder is for none. The returned function waits for the file.
func profile(ctx context.Context, address, folder, name string, length time.Duration) (wait func() error) {
	if folder == "" {
		return func() error { return nil }
	}
	result := make(chan error, 1)
	go func() {
		result <- saveProfile(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, int(length.Seconds())),
			filepath.Join(folder, name+".pprof"))
	}()
	return func() error { return <-result }
}

func saveProfile(ctx context.Context, url, file string) error {
	body, err := get(ctx, url)
	if err != nil {
		return fmt.Errorf("asking for a profile: %w", err)
	}
	defer body.Close()
	saved, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(saved, body)
	return errors.Join(err, saved.Close())
}
