import java.io.*;
import java.net.*;
import java.nio.charset.*;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Main {
    record Point(int x, int y) {}
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Integer>> futures = new ArrayList<>();
        for (int i = 0; i < 20; i++) { final int n = i; futures.add(pool.submit(() -> n * n)); }
        int sum = 0;
        for (Future<Integer> f : futures) sum += f.get();
        pool.shutdown();
        System.out.println(sum + " " + pool.awaitTermination(5, TimeUnit.SECONDS));
        System.out.println(IntStream.rangeClosed(1, 1000).parallel().mapToLong(n -> n).sum());
        System.out.println(Stream.of("b", "a", "c").sorted().collect(Collectors.joining(",")));
        System.out.println(new Point(1, 2) + " " + Charset.defaultCharset() + " žluť " + "ß".toUpperCase());
        Path dir = Files.createTempDirectory("x");
        Path file = dir.resolve("ü.txt");
        Files.writeString(file, "one\ntwo\n");
        try (Stream<String> lines = Files.lines(file)) { System.out.println(lines.count()); }
        try (Stream<Path> walk = Files.walk(dir)) { System.out.println(walk.count()); }
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread t = new Thread(() -> {
                try (Socket s = server.accept()) { s.getOutputStream().write("served\n".getBytes()); }
                catch (IOException e) { e.printStackTrace(); }
            });
            t.start();
            try (Socket c = new Socket(server.getInetAddress(), server.getLocalPort());
                 BufferedReader r = new BufferedReader(new InputStreamReader(c.getInputStream()))) {
                System.out.println(r.readLine());
            }
            t.join();
        }
        System.out.println(ZonedDateTime.of(2024, 7, 1, 0, 0, 0, 0, ZoneId.of("Asia/Tokyo")).toInstant());
        System.out.println(ZoneId.systemDefault().getRules().isFixedOffset());
        Process p = new ProcessBuilder("echo", "child").start();
        System.out.println(new String(p.getInputStream().readAllBytes()).trim() + p.waitFor());
        System.out.println(CompletableFuture.supplyAsync(() -> "async").get());
        int[] big = new int[4_000_000];
        Arrays.setAll(big, i -> i);
        System.gc();
        System.out.println(Arrays.stream(big).asLongStream().sum() + " " + String.format("%.3f", Math.PI));
        System.exit(5);
    }
}
