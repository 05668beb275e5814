<?php
declare(strict_types=1);
namespace App;
interface Shape { public function area(): float; }
final class Square implements Shape { public function __construct(private float $side) {} public function area(): float { return $this->side ** 2; } }
echo (new Square(3))->area(), "\n";
echo json_encode(["ž" => [1, null, 2.5]], JSON_UNESCAPED_UNICODE), "\n";
echo mb_strlen("žluť"), " ", mb_strtoupper("žluť"), "\n";
usort($list = [3, 1, 2], fn($a, $b) => $a <=> $b);
echo implode(",", array_map(fn($n) => $n * $n, range(1, 5))), "\n";
function numbers(int $n): \Generator { for ($i = 0; $i < $n; $i++) { yield $i; } }
echo array_sum(iterator_to_array(numbers(10))), "\n";
$name = tempnam(sys_get_temp_dir(), "x"); file_put_contents($name, "text"); echo filesize($name), "\n";
echo shell_exec("echo shell"), date("Y-m-d", 0), " ", date_default_timezone_get(), "\n";
echo preg_replace('/(\d+)/', '<$1>', "a1b22"), " ", hash("sha256", "x"), "\n";
try { intdiv(1, 0); } catch (\DivisionByZeroError $e) { echo get_class($e), "\n"; }
echo match (true) { PHP_INT_SIZE === 8 => "64 bit", default => "other" }, "\n";
exit(8);
