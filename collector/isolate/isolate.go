// Package isolate is a connector between a pipeline and one that may fail without the first one being told.
//
// A Collector passes an error of any of its pipelines back to the sender, which then sends everything again: when the queue
// of a side branch is full, the backend of the main path gets its spans twice, and the sender's own queue fills. What the
// pipelines behind this connector refuse is dropped instead, and counted by the request: spans that they would have filtered
// out are in the count.
package isolate

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

type config struct{}

// NewFactory makes the connector `isolate` for traces; it has no settings.
func NewFactory() connector.Factory {
	return connector.NewFactory(
		component.MustNewType("isolate"),
		func() component.Config { return &config{} },
		connector.WithTracesToTraces(newTraces, component.StabilityLevelAlpha),
	)
}

type traces struct {
	component.StartFunc
	component.ShutdownFunc
	next    consumer.Traces
	logger  *zap.Logger
	dropped metric.Int64Counter
}

func newTraces(_ context.Context, set connector.Settings, _ component.Config, next consumer.Traces) (connector.Traces, error) {
	dropped, err := set.MeterProvider.Meter("memtrace-otel/isolate").Int64Counter(
		"memtrace_isolate_dropped_spans",
		metric.WithUnit("{spans}"),
		metric.WithDescription("All spans of requests that the pipelines behind the connector refused, for a full queue for example."),
	)
	if err != nil {
		return nil, err
	}
	return &traces{next: next, logger: set.Logger, dropped: dropped}, nil
}

func (*traces) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

func (t *traces) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	spans := td.SpanCount() // those behind may take td apart
	if err := t.next.ConsumeTraces(ctx, td); err != nil {
		t.dropped.Add(ctx, int64(spans))
		t.logger.Warn("the pipelines behind refused spans, which are dropped there", zap.Int("spans", spans), zap.Error(err))
	}
	return nil
}
