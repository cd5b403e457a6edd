package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nstf/nstf/runtime/schedule"
)

// metrics are what /metrics tells.
type metrics struct {
	registry    *prometheus.Registry
	handler     http.Handler
	requests    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	first       prometheus.Histogram
	token       prometheus.Histogram
	promptSizes prometheus.Histogram
}

func newMetrics(models Models) *metrics {
	buckets := prometheus.ExponentialBuckets(0.005, 2, 16)
	m := &metrics{
		registry:    prometheus.NewRegistry(),
		requests:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nstf_http_requests_total", Help: "Requests by path and status."}, []string{"path", "status"}),
		seconds:     prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "nstf_http_request_seconds", Help: "Time of requests.", Buckets: buckets}, []string{"path"}),
		first:       prometheus.NewHistogram(prometheus.HistogramOpts{Name: "nstf_first_token_seconds", Help: "Time from a request to its first token.", Buckets: buckets}),
		token:       prometheus.NewHistogram(prometheus.HistogramOpts{Name: "nstf_token_seconds", Help: "Time of each token behind the first, mean of a request.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)}),
		promptSizes: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "nstf_prompt_tokens", Help: "Tokens of prompts.", Buckets: prometheus.ExponentialBuckets(8, 2, 16)}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.first, m.token, m.promptSizes, scheduled{models},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// request counts one; pattern is its route, so that strangers make no series.
func (m *metrics) request(pattern string, status int, d time.Duration) {
	m.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(pattern).Observe(d.Seconds())
}

func (m *metrics) turn(u *usage) {
	m.promptSizes.Observe(float64(u.PromptTokens))
	if u.first > 0 {
		m.first.Observe(u.first.Seconds())
	}
	if u.Tokens > 1 {
		m.token.Observe((u.all - u.first).Seconds() / float64(u.Tokens-1))
	}
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}

// scheduled collects the counters of all schedulers.
type scheduled struct{ models Models }

// Scheduled models know theirs without being loaded.
type scheduling interface {
	Schedulers() map[string]*schedule.Scheduler
}

var descriptions = func() map[string]*prometheus.Desc {
	all := map[string]*prometheus.Desc{}
	for name, help := range map[string]string{
		"requests_total":        "Requests that were taken.",
		"prompt_tokens_total":   "Tokens of their prompts.",
		"cached_tokens_total":   "Of those, tokens that were found and not computed.",
		"computed_tokens_total": "Tokens of prompts that were computed.",
		"tokens_total":          "Tokens that were chosen.",
		"forced_tokens_total":   "Of those, tokens that a format left no choice of, several in a pass.",
		"steps_total":           "Passes of the model.",
		"yields_total":          "How often a sequence gave its memory to others.",
		"running":               "Choices that are being computed.",
		"waiting":               "Choices that wait.",
		"pages":                 "Pages of keys and values.",
		"pages_free":            "Of those, free ones.",
		"prompts_kept":          "Prompts that are kept to begin others with.",
	} {
		all[name] = prometheus.NewDesc("nstf_"+name, help, []string{"model"}, nil)
	}
	return all
}()

// Describe implements prometheus.Collector.
func (scheduled) Describe(c chan<- *prometheus.Desc) {
	for _, d := range descriptions {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s scheduled) Collect(c chan<- prometheus.Metric) {
	all, ok := s.models.(scheduling)
	if !ok {
		return
	}
	for name, one := range all.Schedulers() {
		m := one.Metrics()
		for key, v := range map[string]int64{
			"requests_total": m.Requests, "prompt_tokens_total": m.PromptTokens, "cached_tokens_total": m.CachedTokens, "computed_tokens_total": m.ComputedTokens,
			"tokens_total": m.Tokens, "forced_tokens_total": m.Forced, "steps_total": m.Steps, "yields_total": m.Yields,
		} {
			c <- prometheus.MustNewConstMetric(descriptions[key], prometheus.CounterValue, float64(v), name)
		}
		for key, v := range map[string]int64{"running": int64(m.Running), "waiting": int64(m.Waiting), "pages": m.Pages, "pages_free": m.FreePages, "prompts_kept": int64(m.Kept)} {
			c <- prometheus.MustNewConstMetric(descriptions[key], prometheus.GaugeValue, float64(v), name)
		}
	}
}
