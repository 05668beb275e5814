// SPDX-License-Identifier: Apache-2.0
// What most programs use, once: a parked javac compiles it and a parked java runs it before there is
// a job (src/warm/java.c), so that those classes are loaded and methods compiled by then. It
// reads no environment, no clock and no time zone: what the JDK keeps of those is the job's.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

public class Rehearsal {
    enum Kind { ONE, TWO }

    record Pair(int number, String text) {}

    interface Shape {
        double area();
    }

    static class Square implements Shape, Comparable<Square> {
        private final double side;

        Square(double side) {
            this.side = side;
        }

        @Override
        public double area() {
            return side * side;
        }

        @Override
        public int compareTo(Square other) {
            return Double.compare(side, other.side);
        }
    }

    static <T, R> List<R> apply(List<T> list, Function<T, R> function) {
        List<R> made = new ArrayList<>();
        for (T item : list) {
            made.add(function.apply(item));
        }
        return made;
    }

    static void collections(PrintStream out) {
        Map<String, List<Integer>> map = new TreeMap<>();
        Map<Integer, String> names = new HashMap<>();
        Deque<Integer> queue = new ArrayDeque<>();
        for (int i = 0; i < 50; i++) {
            map.computeIfAbsent("k" + i % 5, key -> new ArrayList<>()).add(i);
            names.merge(i % 7, "v" + i, String::concat);
            queue.push(i);
        }
        new ConcurrentHashMap<>(names).forEach((key, value) -> queue.addLast(key));
        PriorityQueue<Square> heap = new PriorityQueue<>(List.of(new Square(2), new Square(1.5)));
        out.println(map + " " + names.size() + " " + queue.peek() + " " + heap.poll().area());
        int[] numbers = IntStream.range(0, 50).map(i -> 50 - i).toArray();
        Arrays.sort(numbers);
        out.println(Arrays.toString(numbers) + Arrays.asList(3, 1, 2).stream().sorted().toList());
        out.println(apply(List.of(1, 2, 3), i -> new Pair(i, "p")).stream()
            .filter(pair -> pair.number() > 1)
            .map(Pair::toString)
            .collect(Collectors.joining(",", "[", "]")));
    }

    static void text(PrintStream out) throws Exception {
        Scanner scanner = new Scanner(new ByteArrayInputStream("3 4\nline\n".getBytes()));
        int sum = scanner.nextInt() + scanner.nextInt();
        scanner.nextLine();
        BufferedReader reader = new BufferedReader(
            new InputStreamReader(new ByteArrayInputStream("1 2\n".getBytes())));
        StringTokenizer tokens = new StringTokenizer(reader.readLine());
        sum += Integer.parseInt(tokens.nextToken()) + Integer.parseInt("1 2".split(" ")[1]);
        StringBuilder builder = new StringBuilder();
        for (char c : "text".toCharArray()) {
            builder.append(c).append(Character.toUpperCase(c)).append(sum);
        }
        out.printf("%d %s %.2f %5s%n", sum, builder.reverse(), Math.sqrt(2), scanner.nextLine());
        out.println(String.format("%03d", 7) + String.join("-", "a", "b") + "x".repeat(3));
        PrintWriter writer = new PrintWriter(out);
        writer.println(Optional.of(1).map(i -> i + 1).orElse(0) + 1L * sum);
        writer.flush();
    }

    static void failures(PrintStream out) throws Exception {
        try {
            Object[] none = new Object[0];
            out.println(none[1]);
        } catch (ArrayIndexOutOfBoundsException problem) {
            problem.printStackTrace(out);
        }
        Thread thread = new Thread(() -> out.println("thread"));
        thread.start();
        thread.join();
        out.println(switch (Kind.TWO) {
            case ONE -> 1;
            case TWO -> 2;
        });
    }

    public static void rehearse() throws Exception {
        PrintStream out = new PrintStream(new ByteArrayOutputStream());
        collections(out);
        text(out);
        failures(out);
        System.out.println("hello " + 1);
        System.err.println("hello");
    }
}
