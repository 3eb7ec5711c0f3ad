plait("pictures-11d8062b02ec246e.js",[["[WEBP 12x8 e1cd7d26547060b1]",12,8],["[WEBP 16x16 9503245a0161a939]",16,16],["[WEBP 16x16 3fb5701c6e0bed57]",16,16]]);
