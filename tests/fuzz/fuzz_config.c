/* SPDX-License-Identifier: Apache-2.0 */

/* Settings and keys files: any text gives settings or problems, and what is written reads back.
 */

#include "state/config.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config, again;
    struct strv problems = {0};
    struct keys keys = {0};
    if (config_load_text(&config, (const char *)data, size, &problems) == 0) {
        struct buf out;
        buf_init(&out, 16 << 20);
        if (config_write(&config, &out) == 0) {
            if (config_load_text(&again, out.data, out.len, &problems) < 0)
                abort();
            config_done(&again);
        }
        buf_done(&out);
    }
    config_done(&config);
    keys_add_text(&keys, "fuzz", (const char *)data, size, &problems);
    keys_done(&keys);
    strv_done(&problems);
    return 0;
}
