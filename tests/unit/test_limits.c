/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about defaults and maxima of limits. */

#include "test.h"

#include <errno.h>
#include <string.h>

#include "lang/limits.h"

static void every_row_has_a_default_within_its_range(void **state)
{
    struct run_limits limits = {0}, maxima;
    struct err err = {0};

    assert_int_equal(limit_count, sizeof(struct run_limits) / sizeof(uint64_t));
    for (size_t i = 0; i < limit_count; i++) {
        assert_true(limit_table[i].min >= 1);
        assert_true(limit_table[i].fallback >= limit_table[i].min);
        assert_true(limit_table[i].fallback <= limit_table[i].max);
        assert_int_equal(limit_table[i].offset, i * sizeof(uint64_t));
    }
    limits_fill(&limits, NULL);
    limits_maxima(&maxima);
    assert_int_equal(limits_check(&limits, &maxima, "limits.", &err), 0);
    assert_int_equal(limits_check(&maxima, &maxima, "limits.", &err), 0);
}

static void named_limits_beat_the_runtime_which_beats_the_table(void **state)
{
    struct run_limits limits = {.memory_mb = 100};
    const struct run_limits defaults = {.memory_mb = 512, .processes = 7};

    limits_fill(&limits, &defaults);
    assert_int_equal(limits.memory_mb, 100);
    assert_int_equal(limits.processes, 7);
    assert_int_equal(limits.open_files, 256);
}

static void a_default_does_not_cut_short_what_was_named(void **state)
{
    struct run_limits wall = {.wall_ms = 60000};
    struct run_limits cpu = {.cpu_ms = 60000};
    struct run_limits both = {.wall_ms = 60000, .cpu_ms = 1000};

    limits_fill(&wall, NULL);
    assert_int_equal(wall.cpu_ms, 60000);
    limits_fill(&cpu, NULL);
    assert_int_equal(cpu.wall_ms, 60000);
    limits_fill(&both, NULL);
    assert_int_equal(both.cpu_ms, 1000);
}

static void defaults_give_way_to_maxima(void **state)
{
    struct run_limits defaults = {.memory_mb = 512, .processes = 7};
    struct run_limits maxima, limits = {0};
    struct err err = {0};

    limits_maxima(&maxima);
    limits_cap(&defaults, &maxima);
    assert_int_equal(defaults.memory_mb, 512);
    assert_int_equal(defaults.wall_ms, 0);
    maxima.memory_mb = maxima.disk_mb = 32;
    maxima.wall_ms = 1000; /* less than the table's default */
    limits_cap(&defaults, &maxima);
    limits_fill(&limits, &defaults);
    assert_int_equal(limits.memory_mb, 32);
    assert_int_equal(limits.wall_ms, 1000);
    assert_int_equal(limits.processes, 7);
    assert_int_equal(limits_check(&limits, &maxima, "limits.", &err), 0);
}

static void small_memory_shrinks_default_disk_and_stack(void **state)
{
    struct run_limits limits = {.memory_mb = 32};
    struct run_limits maxima;
    struct err err = {0};

    limits_fill(&limits, NULL);
    limits_maxima(&maxima);
    assert_int_equal(limits.disk_mb, 32);
    assert_int_equal(limits.stack_mb, 16);
    assert_int_equal(limits_check(&limits, &maxima, "", &err), 0);
}

static void a_named_disk_raises_only_a_default_memory(void **state)
{
    struct run_limits grows = {.disk_mb = 1000};
    struct run_limits fixed = {.disk_mb = 1000, .memory_mb = 100};
    struct run_limits maxima;
    struct err err = {0};

    limits_maxima(&maxima);
    limits_fill(&grows, NULL);
    assert_int_equal(grows.memory_mb, 1000);
    assert_int_equal(limits_check(&grows, &maxima, "limits.", &err), 0);
    limits_fill(&fixed, NULL);
    assert_true(limits_check(&fixed, &maxima, "limits.", &err) < 0);
    assert_string_equal(err.field, "limits.disk_mb");
}

static void what_is_out_of_range_is_named_in_the_units_of_the_field(void **state)
{
    struct run_limits limits = {.wall_ms = 600001};
    struct run_limits cpus = {.cpu_milli = 1};
    struct run_limits maxima;
    struct err err = {0};

    limits_maxima(&maxima);
    limits_fill(&limits, NULL);
    assert_int_equal(limits_check(&limits, &maxima, "limits.", &err), -EINVAL);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.field, "limits.wall_ms");
    assert_non_null(strstr(err.message, "600000"));

    limits_fill(&cpus, NULL);
    assert_true(limits_check(&cpus, &maxima, "compile_limits.", &err) < 0);
    assert_string_equal(err.field, "compile_limits.cpus");
    assert_non_null(strstr(err.message, "0.001"));
    assert_non_null(strstr(err.message, "0.05"));
}

static void the_spawner_gets_its_own_units(void **state)
{
    const struct run_limits from = {.wall_ms = 1,
        .cpu_ms = 2500,
        .memory_mb = 5000,
        .processes = 6,
        .open_files = 7,
        .disk_mb = 8,
        .file_size_mb = 9,
        .stack_mb = 10,
        .output_kb = 11,
        .cpu_milli = 50};
    struct spawn_limits to;

    limits_to_spawn(&from, &to);
    assert_int_equal(to.memory_bytes, (uint64_t)5000 << 20);
    assert_int_equal(to.disk_bytes, 8 << 20);
    assert_int_equal(to.file_bytes, 9 << 20);
    assert_int_equal(to.stack_bytes, 10 << 20);
    assert_int_equal(to.inodes, 8 * 128);
    assert_int_equal(to.processes, 6);
    assert_int_equal(to.open_files, 7);
    assert_int_equal(to.cpu_milli, 50);
    assert_int_equal(to.cpu_s, 4);
    assert_int_equal(to.reserved, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_spawner_gets_its_own_units),
        cmocka_unit_test(every_row_has_a_default_within_its_range),
        cmocka_unit_test(named_limits_beat_the_runtime_which_beats_the_table),
        cmocka_unit_test(a_default_does_not_cut_short_what_was_named),
        cmocka_unit_test(defaults_give_way_to_maxima),
        cmocka_unit_test(small_memory_shrinks_default_disk_and_stack),
        cmocka_unit_test(a_named_disk_raises_only_a_default_memory),
        cmocka_unit_test(what_is_out_of_range_is_named_in_the_units_of_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
