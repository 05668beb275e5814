/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-setup: started by the spawner for one job (proto/setup.h). */

#include "setup/setup.h"

#include "base/sys.h"

#include <sys/prctl.h>

/* Seconds for a job; the spawner waits for it. */
enum { PATIENCE_S = 60 };

int main(void)
{
    struct setup_order order;
    int r = -EPROTO;
    if (read(SETUP_ORDER_FD, &order, sizeof(order)) != (ssize_t)sizeof(order) ||
        order.protocol != SPAWN_PROTOCOL ||
        sys_close_range(SETUP_ORDER_FD, SETUP_END_FD - 1, CLOSE_AT_EXEC) < 0)
        return EPROTO;
    (void)alarm(PATIENCE_S);
    /* A program that is executed by descriptor is called by its number. */
    (void)prctl(PR_SET_NAME, "hermes-setup", 0, 0, 0);
    if (order.job == SETUP_PROBE)
        r = setup_probe();
    else if (order.job == SETUP_MAP_IDS)
        r = setup_map_ids(&order);
    return -r & 0x7f;
}
