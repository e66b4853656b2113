// Sends the spans and the evaluation that test_clients.py expects: client grpc|http/protobuf ENDPOINT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Fatal(err) }))
	ctx := context.Background()
	spans, logs := exporters(ctx, os.Args[1], os.Args[2])
	from := resource.NewSchemaless(
		attribute.String("service.name", "client"),
		attribute.String("place", "Zürich 東京 🧠"),
		attribute.String("empty", ""),
	)
	tracing := sdktrace.NewTracerProvider(sdktrace.WithResource(from), sdktrace.WithBatcher(spans))
	logging := sdklog.NewLoggerProvider(
		sdklog.WithResource(from), sdklog.WithProcessor(sdklog.NewBatchProcessor(logs)),
	)
	tracer := tracing.Tracer("memtrace_otel.clients", trace.WithInstrumentationVersion("1.0"))

	inTurn, root := tracer.Start(ctx, "turn", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(at(1)))
	_, search := tracer.Start(inTurn, "search ✓ 記憶",
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(at(123456789)),
		trace.WithAttributes(
			attribute.String("memtrace.op.kind", "retrieve"),
			attribute.StringSlice("memtrace.inputs", []string{"query:1", "memory:m1"}),
			attribute.StringSlice("memtrace.inputs.origins",
				[]string{"", "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"}),
			attribute.String("text", "naïve 東京 🧠\n\t\"'\\"),
			attribute.String("empty", ""),
			attribute.Bool("yes", true),
			attribute.Bool("no", false),
			attribute.Int("zero", 0),
			attribute.Int64("int", -9007199254740991),
			attribute.Int64("least", -9223372036854775808),
			attribute.Float64("double", 0.1),
			attribute.Float64("whole", 2),
			attribute.StringSlice("texts", []string{"a", "", "ü"}),
			attribute.IntSlice("ints", []int{1, 0, -3}),
			attribute.Float64Slice("doubles", []float64{0.5, -2.25, 1e300}),
			attribute.BoolSlice("bools", []bool{true, false}),
			attribute.StringSlice("none", []string{}),
		),
		trace.WithLinks(trace.Link{
			SpanContext: linked(),
			Attributes: []attribute.KeyValue{
				attribute.String("memtrace.link.type", "retrieved"),
				attribute.StringSlice("memtrace.link.refs", []string{"memory:m1"}),
			},
		}),
	)
	search.AddEvent("cache miss ✗", trace.WithTimestamp(at(200000000)),
		trace.WithAttributes(attribute.Int("count", 3), attribute.String("key", "")))
	search.AddEvent("bare", trace.WithTimestamp(at(200000001)))
	search.SetStatus(codes.Error, "nicht gefunden ✗")
	search.End(trace.WithTimestamp(at(987654321)))
	root.SetStatus(codes.Ok, "")
	root.End(trace.WithTimestamp(at(999999999)))

	var record otellog.Record
	record.SetEventName("gen_ai.evaluation.result")
	record.SetTimestamp(at(999999999))
	record.AddAttributes(
		attribute.String("gen_ai.evaluation.name", "correctness"),
		attribute.String("gen_ai.evaluation.score.label", "fail"),
		attribute.Float64("gen_ai.evaluation.score.value", 0.25),
		attribute.String("gen_ai.evaluation.explanation", "außerhalb"),
	)
	logging.Logger("judge").Emit(inTurn, record)

	must(tracing.Shutdown(ctx))
	must(logging.Shutdown(ctx))
	fmt.Printf("{\"trace\": %q, \"turn\": %q, \"search\": %q}\n",
		root.SpanContext().TraceID(), root.SpanContext().SpanID(), search.SpanContext().SpanID())
}

func exporters(ctx context.Context, protocol, endpoint string) (*otlptrace.Exporter, sdklog.Exporter) {
	if protocol == "grpc" {
		spans, err := otlptracegrpc.New(ctx,
			otlptracegrpc.WithEndpointURL(endpoint), otlptracegrpc.WithCompressor("gzip"))
		must(err)
		logs, err := otlploggrpc.New(ctx, otlploggrpc.WithEndpointURL(endpoint), otlploggrpc.WithCompressor("gzip"))
		must(err)
		return spans, logs
	}
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	must(err)
	logs, err := otlploghttp.New(ctx, otlploghttp.WithEndpointURL(endpoint+"/v1/logs"),
		otlploghttp.WithCompression(otlploghttp.GzipCompression))
	must(err)
	return spans, logs
}

func at(nanoseconds int64) time.Time {
	return time.Unix(1700000000, nanoseconds)
}

func linked() trace.SpanContext {
	traceID, err := trace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c")
	must(err)
	spanID, err := trace.SpanIDFromHex("b7ad6b7169203331")
	must(err)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: 1})
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
