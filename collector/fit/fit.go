// Package fit is a processor that cuts spans and log records, and attributes of their resources and scopes, which are too
// large to be sent.
//
// A queue that batches by bytes drops a span that is larger than its batches, and with it whatever else waits to be split,
// without a count. So the longest values of such a span are cut first: it and all others arrive. It belongs behind
// redaction, which would not know half a secret.
package fit

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.opentelemetry.io/otel/metric"
)

// MaxBytes is the size of a span or log record in protobuf. A sixteenth of it may be added by the attributes of its resource, and
// as much by those of its scope, which go along with every batch.
type config struct {
	MaxBytes int `mapstructure:"max_bytes"`
}

func (c *config) Validate() error {
	if c.MaxBytes < 10_000 {
		return errors.New("max_bytes: expected at least 10000")
	}
	return nil
}

// NewFactory makes the processor `fit` for traces and logs.
func NewFactory() processor.Factory {
	return processor.NewFactory(
		component.MustNewType("fit"),
		func() component.Config { return &config{MaxBytes: 700_000} },
		processor.WithTraces(newTraces, component.StabilityLevelAlpha),
		processor.WithLogs(newLogs, component.StabilityLevelAlpha),
	)
}

var mutating = processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true})

func newTraces(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces, error) {
	f, err := newFitter(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewTraces(ctx, set, cfg, next, f.traces, mutating)
}

func newLogs(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Logs) (processor.Logs, error) {
	f, err := newFitter(set, cfg)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewLogs(ctx, set, cfg, next, f.logs, mutating)
}

type fitter struct {
	most int
	cut  metric.Int64Counter
}

func newFitter(set processor.Settings, cfg component.Config) (*fitter, error) {
	cut, err := set.MeterProvider.Meter("memtrace-otel/fit").Int64Counter(
		"memtrace_fit_cut_items",
		metric.WithUnit("{items}"),
		metric.WithDescription("Spans, log records, resources and scopes whose longest values were cut, since they were too large to be sent."),
	)
	return &fitter{most: cfg.(*config).MaxBytes, cut: cut}, err
}

func (f *fitter) traces(ctx context.Context, traces ptrace.Traces) (ptrace.Traces, error) {
	var marshaler ptrace.ProtoMarshaler
	for _, resource := range traces.ResourceSpans().All() {
		f.shared(ctx, resource.Resource())
		for _, scope := range resource.ScopeSpans().All() {
			f.shared(ctx, scope.Scope())
			for _, span := range scope.Spans().All() {
				if marshaler.SpanSize(span) > f.most {
					f.span(marshaler, span)
					f.cut.Add(ctx, 1)
				}
			}
		}
	}
	return traces, nil
}

// A resource or a scope.
type shared interface {
	Attributes() pcommon.Map
	DroppedAttributesCount() uint32
	SetDroppedAttributesCount(uint32)
}

func (f *fitter) shared(ctx context.Context, of shared) {
	var marshaler ptrace.ProtoMarshaler
	span := ptrace.NewSpan() // attributes alone have no size
	of.Attributes().MoveTo(span.Attributes())
	share := &fitter{most: f.most / 16}
	if size := func() int { return marshaler.SpanSize(span) }; size() > share.most {
		share.values(size, []pcommon.Map{span.Attributes()})
		of.SetDroppedAttributesCount(of.DroppedAttributesCount() + 1)
		f.cut.Add(ctx, 1)
	}
	span.Attributes().MoveTo(of.Attributes())
}

func (f *fitter) span(marshaler ptrace.ProtoMarshaler, span ptrace.Span) {
	span.SetDroppedAttributesCount(span.DroppedAttributesCount() + 1)
	maps := []pcommon.Map{span.Attributes()}
	for _, event := range span.Events().All() {
		maps = append(maps, event.Attributes())
	}
	for _, link := range span.Links().All() {
		maps = append(maps, link.Attributes())
	}
	if f.values(func() int { return marshaler.SpanSize(span) }, maps) {
		return
	}
	span.SetDroppedEventsCount(span.DroppedEventsCount() + uint32(span.Events().Len()))
	span.Events().RemoveIf(func(ptrace.SpanEvent) bool { return true })
	span.SetDroppedLinksCount(span.DroppedLinksCount() + uint32(span.Links().Len()))
	span.Links().RemoveIf(func(ptrace.SpanLink) bool { return true })
	span.SetName(short(span.Name(), f.most/8))
	span.Status().SetMessage(short(span.Status().Message(), f.most/8))
	span.TraceState().FromRaw(short(span.TraceState().AsRaw(), f.most/8))
}

func (f *fitter) logs(ctx context.Context, logs plog.Logs) (plog.Logs, error) {
	var marshaler plog.ProtoMarshaler
	for _, resource := range logs.ResourceLogs().All() {
		f.shared(ctx, resource.Resource())
		for _, scope := range resource.ScopeLogs().All() {
			f.shared(ctx, scope.Scope())
			for _, record := range scope.LogRecords().All() {
				if marshaler.LogRecordSize(record) > f.most {
					f.record(marshaler, record)
					f.cut.Add(ctx, 1)
				}
			}
		}
	}
	return logs, nil
}

func (f *fitter) record(marshaler plog.ProtoMarshaler, record plog.LogRecord) {
	record.SetDroppedAttributesCount(record.DroppedAttributesCount() + 1)
	size := func() int { return marshaler.LogRecordSize(record) }
	f.values(size, []pcommon.Map{record.Attributes()}, record.Body())
}

// What tells a span of a memory from others, and an evaluation, and whose they are.
func isOurs(name string, _ pcommon.Value) bool {
	return strings.HasPrefix(name, "memtrace.") || strings.HasPrefix(name, "gen_ai.") || strings.HasPrefix(name, "service.")
}

func isScalar(_ string, value pcommon.Value) bool {
	return value.Type() != pcommon.ValueTypeSlice && value.Type() != pcommon.ValueTypeMap
}

// Cut the values of maps, and those alone, until `size` fits, the longest ones first. Where many small ones are too much,
// lists go, then what is of no memory, then all. False when that is not enough.
func (f *fitter) values(size func() int, maps []pcommon.Map, alone ...pcommon.Value) bool {
	for limit := f.most / 4; limit >= 64; limit /= 4 {
		for _, values := range maps {
			for _, value := range values.All() {
				shorten(value, limit)
			}
		}
		for _, value := range alone {
			shorten(value, limit)
		}
		if size() <= f.most {
			return true
		}
	}
	for _, value := range alone {
		if !isScalar("", value) {
			pcommon.NewValueEmpty().CopyTo(value)
		}
	}
	for _, stays := range []func(string, pcommon.Value) bool{isScalar, isOurs} {
		for _, values := range maps {
			values.RemoveIf(func(name string, value pcommon.Value) bool { return !stays(name, value) })
		}
		if size() <= f.most {
			return true
		}
	}
	for _, values := range maps {
		values.Clear()
	}
	return size() <= f.most
}

func shorten(value pcommon.Value, limit int) {
	switch value.Type() {
	case pcommon.ValueTypeStr:
		value.SetStr(short(value.Str(), limit))
	case pcommon.ValueTypeBytes:
		if bytes := value.Bytes(); bytes.Len() > limit {
			bytes.FromRaw(bytes.AsRaw()[:limit])
		}
	case pcommon.ValueTypeSlice:
		for _, item := range value.Slice().All() {
			shorten(item, limit)
		}
	case pcommon.ValueTypeMap:
		for _, item := range value.Map().All() {
			shorten(item, limit)
		}
	}
}

func short(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
