# Included when NLE's project begins: two functions of ours in place of slow ones, with the same results, and a loop.
if(PROJECT_NAME STREQUAL "nle")
  set_source_files_properties(src/vision.c PROPERTIES COMPILE_DEFINITIONS recalc_mapseen=record_what_is_seen)
  set_source_files_properties(third_party/libtmt/tmt.c PROPERTIES
    COMPILE_OPTIONS "-include;${CMAKE_CURRENT_LIST_DIR}/terminal.h")
  cmake_language(EVAL CODE
    "cmake_language(DEFER CALL target_sources nethack PRIVATE [[${CMAKE_CURRENT_LIST_DIR}/seen.c]] [[${CMAKE_CURRENT_LIST_DIR}/group.c]])")
endif()
