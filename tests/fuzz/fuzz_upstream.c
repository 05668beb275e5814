/* SPDX-License-Identifier: Apache-2.0 */

/* Answers of a proxy: however they are split, the outcome is the same. The input is also a host
 * and its credentials: a request has no line that they could add. */

#include "egress/upstream.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void try_request(const char *text, size_t size)
{
    char request[UPSTREAM_REQUEST];
    char *host = strndup(text, size);
    size_t half = strlen(host) / 2;
    for (int has_secret = 0; has_secret < 2; has_secret++) {
        size_t n = upstream_request(request, host, 443, has_secret ? host + half : "");
        unsigned lines = 0;
        check(n < UPSTREAM_REQUEST);
        for (size_t i = 0; i < n; i++)
            lines += request[i] == '\n';
        check(n == 0 || (n == strlen(request) && lines <= 4));
    }
    free(host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct upstream whole = {0}, split = {0};
    const char *text = (const char *)data;
    size_t taken, one, all = 0;
    (void)upstream_feed(&whole, text, size, &taken);
    check(taken <= size);
    for (size_t at = 0; at < size; at++) {
        (void)upstream_feed(&split, text + at, 1, &one);
        all += one;
    }
    check(split.state == whole.state && split.status == whole.status && all == taken);
    check(whole.state != UPSTREAM_OPEN || (whole.status >= 200 && whole.status <= 299));
    try_request(text, size);
    return 0;
}
