/* What vision.c calls at the end of every look, in place of NetHack's recalc_mapseen.

   NetHack's function walks the whole map to count fountains, altars and the like for the overview. It is called again
   before the hero leaves a level and before an overview is shown; nothing reads the counts in between. So this function
   records only what lasts: the kind of each square in sight. Where more lasts (a room entered for the first time, shops,
   temples, bones, the castle, Fort Ludios, the big room), it calls NetHack's. */
#include "hack.h"
#include <stdint.h>

extern mapseen *mapseenchn; /* what is known of each level */

static boolean only_squares_last(const mapseen *here) {
  if (!here || here->flags.unreachable || here->flags.forgot || here->final_resting_place || level.bonesinfo ||
      Is_bigroom(&u.uz) || Is_knox(&u.uz) || Is_stronghold(&u.uz))
    return FALSE;
  for (int place = 0; place < SIZE(u.urooms); place++) {
    if (!u.urooms[place]) continue;
    int room = u.urooms[place] - ROOMOFFSET;
    if (!here->msrooms[room].seen || here->msrooms[room].untended) return FALSE;
    if (rooms[room].rtype == TEMPLE || rooms[room].rtype >= SHOPBASE) return FALSE;
  }
  return TRUE;
}

/* What stays in memory of a square in sight: a mimic is taken for what it looks like, and below a raised bridge is what
   the bridge spans. */
static schar looks_like(int x, int y) {
  const struct monst *mimic = m_at(x, y);
  if (mimic && canseemon(mimic) && M_AP_TYPE(mimic) == M_AP_FURNITURE) return cmap_to_type(mimic->mappearance);
  const struct rm *square = &levl[x][y];
  return square->typ == DRAWBRIDGE_UP ? db_under_typ(square->drawbridgemask) : square->typ;
}

void record_what_is_seen() {
  const mapseen *here = mapseenchn;
  while (here && !on_level((d_level *)&here->lev, &u.uz)) here = here->next;
  if (!only_squares_last(here)) {
    recalc_mapseen();
    return;
  }
  for (int y = 0; y < ROWNO; y++) {
    for (int x = 0; x < COLNO; x += 8) { /* eight squares of viz_array at a time, the first in the lowest byte */
      uint64_t seen;
      memcpy(&seen, viz_array[y] + x, 8);
      for (seen &= IN_SIGHT * 0x0101010101010101u; seen; seen &= seen - 1) {
        int column = x + __builtin_ctzll(seen) / 8;
        lastseentyp[column][y] = looks_like(column, y);
      }
    }
  }
  if (!Levitation && u.ux > 0) lastseentyp[u.ux][u.uy] = looks_like(u.ux, u.uy);
}
