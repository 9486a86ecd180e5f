# Run at build time, by penstock_header_check():
#
#   cmake -DROOT=... -DHEADERS=list.txt -DFOLDER=... -P header_units.cmake
#
# Writes FOLDER/<header>.cpp for each header of the list (one a line, as ROOT sees them): the header
# twice, with nothing before it that it does not include anyway. So before a header may stand one
# that it includes, and before that one another, and so on: each lacks what it lacks alone. A header
# that stands in the file of another one has an empty file of its own.
cmake_policy(VERSION 3.25)
file(STRINGS ${HEADERS} headers)

set(in_other_files)
foreach(header IN LISTS headers)
  file(STRINGS ${ROOT}/${header} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" included "${line}")
    if(included IN_LIST headers AND NOT included IN_LIST in_other_files)
      set(before_${header} ${included})
      list(APPEND in_other_files ${included})
      break()
    endif()
  endforeach()
endforeach()

foreach(header IN LISTS headers)
  set(text "")
  set(next ${header})
  while(NOT header IN_LIST in_other_files AND next)
    string(PREPEND text "#include \"${next}\"\n#include \"${next}\"\n")
    set(next ${before_${next}})
  endwhile()
  string(REPLACE "/" "__" unit ${header})
  set(unit ${FOLDER}/${unit}.cpp)
  if(EXISTS ${unit})
    file(READ ${unit} written)
  endif()
  if(NOT EXISTS ${unit} OR NOT written STREQUAL text)
    file(WRITE ${unit} "${text}")
  endif()
endforeach()
