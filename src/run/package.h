/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes a package (proto/package.h) and reads the records that the collector of a box sends
 * back. */

#include "base/err.h"
#include "run/run.h"

enum { PACKAGE_FILE_LISTS = 5 };

/* The content of a package. A file of a later list replaces files of the same name in earlier
 * lists. */
struct package_spec {
    const struct strv *argv;
    const struct strv *env;
    const struct strv *globs;                          /* or NULL */
    const struct run_files *files[PACKAGE_FILE_LISTS]; /* each may be NULL */
    uint32_t collect_max_files;
    uint64_t collect_max_bytes;
    const char *program; /* name of the file that becomes the executable "main", or NULL */
};

/* Writes the package into a sealed memfd and returns it in *ret_fd. */
int package_write(const struct package_spec *spec, int *ret_fd, struct err *err);

/* Computes the bytes and inodes that the files need in the box. */
void package_weigh(const struct package_spec *spec, uint64_t *ret_bytes, uint64_t *ret_inodes);

/* Parses the collector's records as they arrive. The records are hostile: every length is
 * bounded by the caps. */
struct collect_reader {
    struct buf pending;
    struct run_files files;
    uint64_t bytes_left;
    uint32_t files_left;
    bool ended;
    bool cut; /* the collector reached a cap */
    struct buf_purse *purse;
    bool is_starved; /* memory for a file was refused */
};
void collect_reader_init(struct collect_reader *reader, uint32_t max_files, uint64_t max_bytes);
/* Charges the files to the purse. They are not given back, so the purse must belong to the
 * run. */
void collect_reader_count(struct collect_reader *reader, struct buf_purse *purse);
void collect_reader_done(struct collect_reader *reader);

/* Takes the next bytes. -EBADMSG when they are malformed or too long; the caller then stops
 * feeding. */
int collect_reader_feed(struct collect_reader *reader, const char *data, size_t len);
