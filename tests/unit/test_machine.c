/* SPDX-License-Identifier: Apache-2.0 */

#include "base/os/machine.h"

#include "test.h"

static void the_machine_has_cores_memory_and_processes(void **state)
{
    assert_true(machine_cores() >= 1);
    assert_true(machine_memory_mb() >= 64);
    assert_in_range(machine_processes(), 100, 1 << 22); /* PID_MAX_LIMIT of the kernel */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_has_cores_memory_and_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
