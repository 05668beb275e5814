/* SPDX-License-Identifier: Apache-2.0 */

/* What a plug-in says: its frames, in pieces of any size, and the JSON in them. The first byte
 * chooses the size of the pieces, the second what was asked last. */

#include "backend/plugin_frame.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void parse(const struct plugin_reader *r, enum plugin_kind kind)
{
    char words[PLUGIN_WORDS] = "";
    struct plugin_ready ready;
    bool is_resumed;
    if (kind == PLUGIN_READY && plugin_parse_ready(&r->json, &ready, words) == 0)
        check(ready.enforced < 1u << PLUGIN_LIMITS && strlen(ready.name) < sizeof(ready.name));
    if (kind == PLUGIN_OPENED && plugin_parse_opened(&r->json, &is_resumed, words) < 0)
        check(words[0]);
    if (kind == PLUGIN_ERROR) {
        enum place_limit limit;
        enum place_error error = plugin_parse_error(&r->json, words, &limit);
        check(error > PLACE_FINE && error < PLACE_ERRORS && words[0] && limit <= PLACE_LIMITS);
        check(strlen(words) < PLUGIN_WORDS && !strchr(words, '\n'));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plugin_reader reader;
    if (size < 2)
        return 0;
    size_t step = data[0] ? data[0] : 1;
    plugin_reader_init(&reader);
    reader.awaited = data[1] % PLUGIN_KINDS;
    reader.is_streaming = data[1] & 0x80;
    for (size_t at = 2; at < size;) {
        const char *piece = NULL;
        size_t len = 0;
        enum plugin_kind kind;
        size_t want = size - at < step ? size - at : step;
        ssize_t n = plugin_read(&reader, (const char *)data + at, want, &kind, &piece, &len);
        if (n < 0) {
            check(reader.problem[0] != '\0');
            break;
        }
        check(n > 0 && (size_t)n <= want);
        if (kind == PLUGIN_DATA)
            check(len && piece >= (const char *)data + at &&
                  piece + len <= (const char *)data + at + n);
        parse(&reader, kind);
        at += (size_t)n;
        if (reader.awaited == PLUGIN_NONE) /* the host asks the next */
            reader.awaited = data[at % size] % PLUGIN_KINDS;
    }
    plugin_reader_done(&reader);
    return 0;
}
