// Sends the spans and the evaluation that test_clients.py expects: Client grpc|http/protobuf ENDPOINT

import static io.opentelemetry.api.common.AttributeKey.*;

import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.*;
import io.opentelemetry.context.Context;
import io.opentelemetry.exporter.otlp.http.logs.OtlpHttpLogRecordExporter;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.exporter.otlp.logs.OtlpGrpcLogRecordExporter;
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter;
import io.opentelemetry.sdk.logs.SdkLoggerProvider;
import io.opentelemetry.sdk.logs.export.BatchLogRecordProcessor;
import io.opentelemetry.sdk.logs.export.LogRecordExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.util.List;
import java.util.concurrent.TimeUnit;

public class Client {
  public static void main(String[] arguments) {
    String protocol = arguments[0];
    String endpoint = arguments[1];
    Resource resource =
        Resource.create(
            Attributes.of(
                stringKey("service.name"), "client",
                stringKey("place"), "Zürich 東京 🧠",
                stringKey("empty"), ""));
    SdkTracerProvider tracing =
        SdkTracerProvider.builder()
            .setResource(resource)
            .addSpanProcessor(BatchSpanProcessor.builder(spans(protocol, endpoint)).build())
            .build();
    SdkLoggerProvider logging =
        SdkLoggerProvider.builder()
            .setResource(resource)
            .addLogRecordProcessor(BatchLogRecordProcessor.builder(logs(protocol, endpoint)).build())
            .build();
    Tracer tracer = tracing.tracerBuilder("memtrace_otel.clients").setInstrumentationVersion("1.0").build();

    Span root =
        tracer.spanBuilder("turn").setNoParent().setSpanKind(SpanKind.SERVER).setStartTimestamp(at(1), NANOS).startSpan();
    Context inTurn = Context.root().with(root);
    SpanContext linked =
        SpanContext.create(
            "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", TraceFlags.getSampled(), TraceState.getDefault());
    Span search =
        tracer
            .spanBuilder("search ✓ 記憶")
            .setParent(inTurn)
            .setSpanKind(SpanKind.CLIENT)
            .setStartTimestamp(at(123456789), NANOS)
            .setAttribute("memtrace.op.kind", "retrieve")
            .setAttribute(stringArrayKey("memtrace.inputs"), List.of("query:1", "memory:m1"))
            .setAttribute(
                stringArrayKey("memtrace.inputs.origins"),
                List.of("", "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"))
            .setAttribute("text", "naïve 東京 🧠\n\t\"'\\")
            .setAttribute("empty", "")
            .setAttribute("yes", true)
            .setAttribute("no", false)
            .setAttribute("zero", 0)
            .setAttribute("int", -9007199254740991L)
            .setAttribute("least", Long.MIN_VALUE)
            .setAttribute("double", 0.1)
            .setAttribute("whole", 2.0)
            .setAttribute(stringArrayKey("texts"), List.of("a", "", "ü"))
            .setAttribute(longArrayKey("ints"), List.of(1L, 0L, -3L))
            .setAttribute(doubleArrayKey("doubles"), List.of(0.5, -2.25, 1e300))
            .setAttribute(booleanArrayKey("bools"), List.of(true, false))
            .setAttribute(stringArrayKey("none"), List.of())
            .addLink(
                linked,
                Attributes.of(
                    stringKey("memtrace.link.type"), "retrieved",
                    stringArrayKey("memtrace.link.refs"), List.of("memory:m1")))
            .startSpan();
    Attributes ofEvent = Attributes.of(longKey("count"), 3L, stringKey("key"), "");
    search.addEvent("cache miss ✗", ofEvent, at(200000000), NANOS);
    search.addEvent("bare", at(200000001), NANOS);
    search.setStatus(StatusCode.ERROR, "nicht gefunden ✗");
    search.end(at(987654321), NANOS);
    root.setStatus(StatusCode.OK);
    root.end(at(999999999), NANOS);
    logging
        .get("judge")
        .logRecordBuilder()
        .setEventName("gen_ai.evaluation.result")
        .setTimestamp(at(999999999), NANOS)
        .setContext(inTurn)
        .setAttribute("gen_ai.evaluation.name", "correctness")
        .setAttribute("gen_ai.evaluation.score.label", "fail")
        .setAttribute(doubleKey("gen_ai.evaluation.score.value"), 0.25)
        .setAttribute("gen_ai.evaluation.explanation", "außerhalb")
        .emit();

    tracing.shutdown().join(10, TimeUnit.SECONDS);
    logging.shutdown().join(10, TimeUnit.SECONDS);
    SpanContext turn = root.getSpanContext();
    System.out.printf(
        "{\"trace\": \"%s\", \"turn\": \"%s\", \"search\": \"%s\"}%n",
        turn.getTraceId(), turn.getSpanId(), search.getSpanContext().getSpanId());
  }

  private static final TimeUnit NANOS = TimeUnit.NANOSECONDS;

  private static long at(long nanoseconds) {
    return 1_700_000_000_000_000_000L + nanoseconds;
  }

  private static SpanExporter spans(String protocol, String endpoint) {
    return protocol.equals("grpc")
        ? OtlpGrpcSpanExporter.builder().setEndpoint(endpoint).setCompression("gzip").build()
        : OtlpHttpSpanExporter.builder().setEndpoint(endpoint + "/v1/traces").setCompression("gzip").build();
  }

  private static LogRecordExporter logs(String protocol, String endpoint) {
    return protocol.equals("grpc")
        ? OtlpGrpcLogRecordExporter.builder().setEndpoint(endpoint).setCompression("gzip").build()
        : OtlpHttpLogRecordExporter.builder().setEndpoint(endpoint + "/v1/logs").setCompression("gzip").build();
  }
}
