// Package workers is the leader's side of the channel to workers: the pods of
// mount Jobs, which wait for more operations when their batch is done. A worker
// asks by HTTPS and long poll, and its request has the report of its last batch.
// The answer is the newest batch of its Job, which the jobs loop writes to the
// Job's annotations first: that is what a next leader learns of it.
//
// Only the leader serves. A worker knows it by the key in its Job's arguments, and
// the leader knows a worker by a token that is bound to the worker's pod.
package workers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// Options say where the channel is, and what it uses.
type Options struct {
	// Host is the address of this pod by which workers reach it; "" means that there is no channel.
	Host string
	Port int // 0 is any free one
	// Reviews checks tokens. Anything that reaches the port can cause a review, so loops should not share its rate.
	Reviews authenticationv1.TokenReviewInterface
	Caches  *caches.Caches
	// Namespace is that of mount Jobs.
	Namespace string
	// Now is the apiserver's time.
	Now     func() time.Time
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Channel is safe for concurrent use. The zero Channel has no workers.
type Channel struct {
	options  Options
	known    *cache.LRUExpireCache // of review, by the SHA-256 of the token
	onReport func(job *batchv1.Job, batch int)
	onWait   func(job *batchv1.Job)
	refused  *prometheus.CounterVec // by code

	mu      sync.Mutex
	leader  mountjobs.Leader // guarded by mu; zero while it does not serve
	workers map[types.UID]*worker
}

type worker struct {
	reported map[int]mountjobs.Reported
	// poll is the request that waits, nil if none does.
	poll *poll
}

type poll struct {
	batch int           // that it reported
	wake  chan struct{} // has a value when the Job has changed, a later request replaces this one, or it is ended
	ended string        // why the worker is to end; "" is not
}

// New makes the channel. It is to be called before the caches run.
func New(o Options) (*Channel, error) {
	if o.Host == "" {
		return &Channel{}, nil
	}
	c := &Channel{
		options: o, known: cache.NewLRUExpireCache(knownReviews), workers: map[types.UID]*worker{},
		onReport: func(*batchv1.Job, int) {}, onWait: func(*batchv1.Job) {},
	}
	c.options.Log = o.Log.With(slog.String("controller", "workers"))
	factory := promauto.With(o.Metrics)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "efs_stunnel_manager_workers_waiting",
		Help: "Pods of mount Jobs that wait for more operations. Leader only.",
	}, c.waiting)
	c.refused = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "efs_stunnel_manager_worker_requests_refused_total",
		Help: "Requests on the port for workers that were refused, by the code of the answer: a few 409 and 503 are usual, many 401 are of something else that reaches the port. At log level debug, each is in the log with its address.",
	}, []string{"code"})
	if err := objects.OnChange(c.jobChanged, o.Caches.Jobs); err != nil {
		return nil, fmt.Errorf("watching for batches of workers: %w", err)
	}
	return c, nil
}

// OnChange sets what is called when a worker has reported a batch of its Job, and when a worker begins to
// wait. It is to be called before Listen.
func (c *Channel) OnChange(report func(job *batchv1.Job, batch int), wait func(job *batchv1.Job)) {
	c.onReport, c.onWait = report, wait
}

// Leader is where the workers of new Jobs ask, the zero Leader while this manager does not serve.
func (c *Channel) Leader() mountjobs.Leader {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

func (c *Channel) with(job types.UID, use func(*worker)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[job]; w != nil {
		use(w)
	}
}

// Waits reports whether the worker of a Job has reported its newest batch, and waits for the next one.
func (c *Channel) Waits(job *batchv1.Job) (waits bool) {
	c.with(job.UID, func(w *worker) { waits = w.poll != nil && w.poll.batch == mountjobs.NewestBatch(job) })
	return waits
}

// End refuses the request of a worker that waits, so that it ends and the next Job can begin.
func (c *Channel) End(job *batchv1.Job, why string) {
	c.with(job.UID, func(w *worker) {
		if w.poll != nil {
			w.poll.ended = why
			w.poll.notify()
		}
	})
}

// Reported returns what the worker of a Job has reported, by batch. The map is never changed.
func (c *Channel) Reported(job types.UID) (reported map[int]mountjobs.Reported) {
	c.with(job, func(w *worker) { reported = w.reported })
	return reported
}

func (c *Channel) waiting() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, w := range c.workers {
		if w.poll != nil {
			n++
		}
	}
	return float64(n)
}

// jobChanged wakes the worker of a Job, which may have got a batch, and forgets that of one whose outcome was used.
func (c *Channel) jobChanged(before, after any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if job, ok := after.(*batchv1.Job); ok && mountjobs.IsUnreleased(job) {
		if w := c.workers[job.UID]; w != nil && w.poll != nil {
			w.poll.notify()
		}
		return
	}
	if job, ok := before.(*batchv1.Job); ok {
		delete(c.workers, job.UID)
	}
}

func (p *poll) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

const (
	headerTime = 5 * time.Second
	idleTime   = time.Minute
	writeTime  = operations.LongestPoll + 10*time.Second
	endTime    = 500 * time.Millisecond
)

// Listen opens the channel until the context ends. Then every request is refused: nothing is given to a
// worker by a manager that does not lead.
func (c *Channel) Listen(ctx context.Context) (done func() error, err error) {
	if c.options.Host == "" {
		return func() error { return nil }, nil
	}
	certificate, key, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("making the key for workers: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(c.options.Port))
	if err != nil {
		return nil, fmt.Errorf("listening for workers: %w", err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // which has one
	c.setLeader(mountjobs.Leader{Address: net.JoinHostPort(c.options.Host, port), Key: key})
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	listener = httpserver.Limit(listener, func() int { return httpserver.MaxConnections + 2*caches.Count(c.options.Caches.Jobs) })
	protocols := new(http.Protocols) // a connection of HTTP/2 has 250 requests
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: httpserver.MaxHeaderBytes, Protocols: protocols,
		BaseContext: func(net.Listener) context.Context { return serving },
		TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}},
		ErrorLog:    slog.NewLogLogger(c.options.Log.Handler(), slog.LevelDebug), // about clients that disconnect
	}
	stop := context.AfterFunc(ctx, func() {
		end(errNotLeading)
		c.setLeader(mountjobs.Leader{})
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if server.Shutdown(ending) != nil { // workers that wait are refused, and end at once
			_ = server.Close()
		}
	})
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	c.options.Log.InfoContext(ctx, "channel to workers opened", slog.String("address", listener.Addr().String()))
	return func() error {
		defer stop()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving workers: %w", err)
		}
		return nil
	}, nil
}

func (c *Channel) setLeader(l mountjobs.Leader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = l
}

// newCertificate makes a certificate and the SHA-256 of its public key, for the time that this manager leads.
func newCertificate() (certificate tls.Certificate, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate, "", err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	public, keyErr := x509.MarshalPKIXPublicKey(&private.PublicKey)
	sum := sha256.Sum256(public)
	certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	return certificate, hex.EncodeToString(sum[:]), errors.Join(err, keyErr)
}

func username(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + wellknown.WorkerServiceAccount
}
